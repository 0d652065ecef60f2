//! `Region`: memory for programs that ask for it.
