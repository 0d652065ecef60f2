//! Any bytes as what a server of S3 says to the engine: it reads or refuses them, in time.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|said: &[u8]| zfold_far::testing::replies::s3(said));
