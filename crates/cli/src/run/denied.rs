//! What to do when memory cannot be managed here.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;
use zfold_vmem::run::Denied;

const DEVICE: &str = "/dev/userfaultfd";

/// Returns why it is denied, and the command that grants it to this user.
pub(super) fn why(denied: &Denied) -> String {
    match denied {
        Denied::Permission => {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            let user = user(&passwd, geteuid().as_raw());
            let command = grant(&user, Path::new(DEVICE).exists());
            format!(
                "not permitted to handle the kernel's own page faults; grant it with: {command}"
            )
        }
        denied => denied.to_string(),
    }
}

fn grant(user: &str, has_device: bool) -> String {
    if has_device {
        format!("sudo setfacl -m u:{user}:rw {DEVICE}")
    } else {
        "sudo sysctl vm.unprivileged_userfaultfd=1".to_owned()
    }
}

/// Returns the name of a user, or the number, which the command takes as well.
fn user(passwd: &str, uid: u32) -> String {
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    });
    name.map_or_else(|| number.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_user() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\nbad\n";
        assert_eq!((user(passwd, 0), user(passwd, 1000)), ("root".into(), "ada".into()));
        assert_eq!(user(passwd, 7), "7");
        assert_eq!(grant("ada", true), "sudo setfacl -m u:ada:rw /dev/userfaultfd");
        assert!(grant("ada", false).contains("sysctl"));
    }
}
