//! The shedders of a node: the classes that one never sheds, and their names.

use tollgate_document::{Located, Problems, hint, short};

use crate::file_format::File;
use crate::priority::PriorityClass;
use crate::shed::{NODE_SHEDDER, NodeShedSettings, THROTTLE};

/// Returns the settings of the shedder of a node, if the file has one.
pub(super) fn settings(
    file: &File,
    classes: &[PriorityClass],
    problems: &mut Problems,
) -> Option<Box<NodeShedSettings>> {
    // Whether the gateway throttles is not known here.
    reserve_name(file, (THROTTLE, "the throttle of upstreams"), problems);
    let node = file.shed.as_ref()?.node.as_ref()?;
    reserve_name(file, (NODE_SHEDDER, "the shedder of the node"), problems);
    let kept = node.keep.as_ref().map_or(Some(0), |keep| kept_classes(keep, classes, problems))?;
    Some(Box::new(node.settings(kept)))
}

/// Reports limits that have the name of a shedder.
fn reserve_name(file: &File, (reserved, owner): (&str, &str), problems: &mut Problems) {
    let named = file.limits.iter().filter_map(|limit| limit.name.as_ref());
    for name in named.filter(|name| name.value == reserved) {
        problems
            .error(name.place, format!("`{reserved}` is the name of {owner}"))
            .label("give this limit another name");
    }
}

/// Returns the number of classes that are never shed: the named one and all more important ones.
fn kept_classes(keep: &Located<String>, classes: &[PriorityClass], problems: &mut Problems) -> Option<u8> {
    let Some(class) = classes.iter().find(|class| class.name() == keep.value) else {
        let help = if classes.is_empty() {
            "`priorities` names the classes, the most important first".to_owned()
        } else {
            hint(&keep.value, "classes", classes.iter().map(PriorityClass::name))
        };
        problems.error(keep.place, format!("no class is called `{}`", short(&keep.value))).help(help);
        return None;
    };
    if usize::from(class.rank()) + 1 == classes.len() {
        problems
            .error(keep.place, "nothing is left to shed")
            .label("the least important class")
            .help("`keep` names a class that is never shed, and with it all more important ones: here, all");
        return None;
    }
    Some(class.rank() + 1)
}
