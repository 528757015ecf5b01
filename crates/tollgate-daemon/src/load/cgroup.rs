//! The CPU quotas of the cgroup of this process and of the groups above it.
//!
//! Both versions of cgroups are read: version 2 has `cpu.max` and `cpu.stat`, version 1 `cpu.cfs_quota_us`,
//! `cpu.cfs_period_us` and `cpuacct.usage`. In a container, the path in `/proc/self/cgroup` may be that of
//! the host, which is not mounted: then the mounted root is the group of the container.

use std::fs;
use std::path::{Path, PathBuf};

/// The file that names the cgroups of this process.
const MEMBERSHIP_FILE: &str = "proc/self/cgroup";
/// The directory in which cgroups are mounted.
const MOUNT: &str = "sys/fs/cgroup";
/// The period of a quota that states none, in microseconds.
const DEFAULT_PERIOD_MICROS: u64 = 100_000;
/// The maximum number of directories that are read, from the group of the process upward.
const MAX_DEPTH: usize = 32;

/// A cgroup with a CPU quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuQuota {
    /// The directory of the group.
    pub(super) folder: PathBuf,
    /// The CPU time that the group has used.
    pub(super) used_micros: u64,
    /// The quota in thousandths of a core.
    pub(super) millicores: u64,
}

/// Returns the groups that have a quota: none if no quota applies, `None` if the groups cannot be read.
pub(super) fn quotas(root: &Path) -> Option<Vec<CpuQuota>> {
    let membership = fs::read_to_string(root.join(MEMBERSHIP_FILE)).ok()?;
    let mut is_readable = false;
    let mut found = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|it| it == "cpu") {
            continue;
        }
        let mounts: &[&str] = if is_v2 { &["", "unified"] } else { &["cpu,cpuacct", "cpu"] };
        for mount in mounts {
            let mount = root.join(MOUNT).join(mount);
            is_readable |= mount.is_dir();
            let read = |folder: &Path| if is_v2 { version_2(folder) } else { version_1(folder) };
            found.extend(folders(&mount, path).filter_map(|folder| read(&folder)));
        }
    }
    is_readable.then_some(found)
}

/// Returns the directories of a group and of the groups above it, up to the mounted root.
fn folders(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    // A path out of the mount, which a container may be shown, is not followed.
    let inside = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    let folder = inside.fold(mount.to_owned(), |folder, part| folder.join(part));
    let mount = mount.to_owned();
    let above = std::iter::successors(Some(folder), move |folder| {
        (*folder != mount).then(|| folder.parent().map(Path::to_owned))?
    });
    above.take(MAX_DEPTH)
}

fn version_2(folder: &Path) -> Option<CpuQuota> {
    let max = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let mut words = max.split_ascii_whitespace();
    // `max` is no quota, and not a number.
    let quota: u64 = words.next()?.parse().ok()?;
    let period = words.next().map_or(Some(DEFAULT_PERIOD_MICROS), |it| it.parse().ok())?;
    let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(CpuQuota {
        folder: folder.to_owned(),
        used_micros: used.trim().parse().ok()?,
        millicores: millicores(quota, period)?,
    })
}

fn version_1(folder: &Path) -> Option<CpuQuota> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a quota, the file says -1.
    let millicores = millicores(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)?;
    let used_micros = number("cpuacct.usage")? / 1_000;
    Some(CpuQuota { folder: folder.to_owned(), used_micros, millicores })
}

/// Returns a quota in thousandths of a core; `None` for a quota or a period of zero.
fn millicores(quota: u64, period: u64) -> Option<u64> {
    let millicores = (u128::from(quota) * 1_000).checked_div(u128::from(period))?;
    u64::try_from(millicores).ok().filter(|it| *it > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    use crate::load::tests::write;

    /// Returns the used time and the quota of each group.
    fn read(files: &[(&str, &str)]) -> Option<Vec<(u64, u64)>> {
        let folder = Scratch::new();
        for (name, text) in files {
            write(&folder, name, text);
        }
        Some(quotas(folder.path())?.into_iter().map(|it| (it.used_micros, it.millicores)).collect())
    }

    const STAT: (&str, &str) = ("sys/fs/cgroup/a/b/cpu.stat", "nr_periods 1\nusage_usec 7000\n");
    const MEMBER: (&str, &str) = ("proc/self/cgroup", "0::/a/b\n");

    #[test]
    fn version_2_has_quotas_at_every_height() {
        let (own, above) = ("sys/fs/cgroup/a/b/cpu.max", "sys/fs/cgroup/a/cpu.max");
        let stat = ("sys/fs/cgroup/a/cpu.stat", "usage_usec 9000\n");
        let both = [MEMBER, STAT, stat, (own, "150000 100000\n"), (above, "200000 100000")];
        assert_eq!(read(&both), Some(vec![(7_000, 1_500), (9_000, 2_000)]));
        assert_eq!(read(&[MEMBER, STAT, (own, "max 100000\n"), (above, "max")]), Some(vec![]));
        assert_eq!(read(&[MEMBER, STAT, (own, "50000")]), Some(vec![(7_000, 500)]));
    }

    #[test]
    fn odd_contents_of_version_2_are_no_quota() {
        for max in
            ["", "\n", "0 100000", "100000 0", "-1 100000", "1e5 100000", "x y", "99999999999999999999 1"]
        {
            assert_eq!(read(&[MEMBER, STAT, ("sys/fs/cgroup/a/b/cpu.max", max)]), Some(vec![]), "{max:?}");
        }
        for stat in ["", "usage_usec", "usage_usec \n", "usage_usec -1", "user_usec 5", "usage_usec 1x"] {
            let stat = ("sys/fs/cgroup/a/b/cpu.stat", stat);
            assert_eq!(read(&[MEMBER, ("sys/fs/cgroup/a/b/cpu.max", "1 2"), stat]), Some(vec![]), "{stat:?}");
        }
        let huge = ("sys/fs/cgroup/a/b/cpu.max", "18446744073709551615 1");
        assert_eq!(read(&[MEMBER, STAT, huge]), Some(vec![]));
    }

    #[test]
    fn version_1_is_read_from_its_own_mount() {
        let member = ("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/pod\n1:name=systemd:/y\n");
        let folder = "sys/fs/cgroup/cpu,cpuacct/pod";
        let file = |name: &str| format!("{folder}/{name}");
        let (quota, period, usage) =
            (file("cpu.cfs_quota_us"), file("cpu.cfs_period_us"), file("cpuacct.usage"));
        let with = |text: &'static str| {
            read(&[member, (&quota, text), (&period, "100000\n"), (&usage, "3000000\n")])
        };
        assert_eq!(with("25000\n"), Some(vec![(3_000, 250)]));
        assert_eq!(with("-1\n"), Some(vec![]));
        assert_eq!(with("0\n"), Some(vec![]));
    }

    #[test]
    fn a_path_of_the_host_is_the_mounted_root_in_a_container() {
        let member = ("proc/self/cgroup", "0::/../../kubepods/pod7\n");
        let (max, stat) = ("sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu.stat");
        let found = read(&[member, (max, "100000 100000"), (stat, "usage_usec 5")]);
        assert_eq!(found, Some(vec![(5, 1_000)]));
    }

    #[test]
    fn groups_that_cannot_be_read_are_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("proc/self/cgroup", "")]), None);
        assert_eq!(read(&[("proc/self/cgroup", "garbage\n0::\n:::\n")]), None);
        assert_eq!(read(&[("proc/self/cgroup", "0::/a"), ("sys/fs/x", "")]), None);
    }
}
