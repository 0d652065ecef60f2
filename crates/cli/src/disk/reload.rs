//! SIGHUP: the configuration file again, for what can change while devices are served.

use super::plan::DiskPlan;
use super::server::Server;
use crate::args::DiskArgs;
use crate::shared::exit::remark;

/// Reads the configuration again and takes over what can change; says a line for each key that
/// cannot. `plan` becomes what the file says now, so that a knob that was turned by a command
/// stays until its key changes.
pub(super) fn reload(args: &DiskArgs, plan: &mut DiskPlan, server: &Server) {
    if args.config.is_none() {
        return remark("no configuration file to reread: start with --config FILE");
    }
    let new = match DiskPlan::new(args) {
        Ok(new) => new,
        Err(failure) => {
            return remark(&format!("the configuration stays as it was: {}", failure.line()));
        }
    };
    for key in plan.differences(&new) {
        remark(&format!("{key} cannot change while devices are served: restart to change it"));
    }
    for device in &server.devices {
        let made = &device.made;
        let named = |plan: &DiskPlan| {
            plan.devices.iter().find(|device| device.made.name == made.name).cloned()
        };
        let Some(wanted) = named(&new) else {
            remark(&format!("{} is gone from the file: restart to remove it", made.name));
            continue;
        };
        for key in made.differences(&wanted.made) {
            remark(&format!("{}: {key} cannot change while it is served: restart", made.name));
        }
        let before = named(plan).unwrap_or_else(|| wanted.clone());
        for told in device.retune(&before, &wanted) {
            remark(&told);
        }
    }
    let served = |name: &str| server.devices.iter().any(|device| device.made.name == name);
    for device in new.devices.iter().filter(|device| !served(&device.made.name)) {
        remark(&format!("{} is new in the file: restart to serve it", device.made.name));
    }
    *plan = new;
}
