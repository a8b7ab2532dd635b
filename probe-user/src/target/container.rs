//! Containers: processes whose cgroup path names one.

use super::model::{Container, Namespace};
use super::process::Process;
use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Containers among the processes, in the order of their ids.
pub(super) fn find(processes: &[Process], namespaces: &[Namespace]) -> Vec<Container> {
    let cookies: HashMap<u64, u64> = namespaces.iter().map(|place| (place.inode, place.cookie)).collect();
    let mut found: BTreeMap<String, Container> = BTreeMap::new();
    for process in processes {
        let Some(identity) = identity_of(&process.cgroup) else { continue };
        let container = found.entry(identity.id.clone()).or_insert_with(|| Container {
            id: identity.id,
            name: None,
            runtime: identity.runtime,
            pod: identity.pod,
            netns: process.netns.and_then(|inode| cookies.get(&inode).copied()),
            tgids: Vec::new(),
            cgroup: process.cgroup.clone(),
        });
        container.tgids.push(process.tgid);
    }
    let names = if found.is_empty() { HashMap::new() } else { kubernetes_names() };
    found.into_values().map(|container| Container { name: names.get(&container.id).cloned(), ..container }).collect()
}

/// Names by container id, from the links that a kubelet keeps for log collectors:
/// `POD_NAMESPACE_CONTAINER-ID.log`.
fn kubernetes_names() -> HashMap<String, String> {
    let entries = fs::read_dir("/var/log/containers").into_iter().flatten().flatten();
    entries.filter_map(|entry| name_in_log(entry.file_name().to_str()?)).collect()
}

fn name_in_log(file: &str) -> Option<(String, String)> {
    let (rest, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = rest.splitn(3, '_');
    let (pod, _, container) = (parts.next()?, parts.next()?, parts.next()?);
    is_id(id).then(|| (id.to_owned(), format!("{pod}/{container}")))
}

#[derive(Debug, PartialEq, Eq)]
struct Identity {
    id: String,
    runtime: &'static str,
    pod: Option<String>,
}

/// What a cgroup path says of a container: the innermost part that names one.
fn identity_of(path: &str) -> Option<Identity> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let pod = parts.iter().find_map(|part| pod_in(part));
    let named = parts.iter().enumerate().rev().find_map(|(index, part)| {
        let parent = index.checked_sub(1).and_then(|before| parts.get(before)).copied().unwrap_or_default();
        identity_in(part, parent)
    });
    named.map(|(id, runtime)| Identity { id, runtime, pod })
}

fn identity_in(part: &str, parent: &str) -> Option<(String, &'static str)> {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    if is_id(bare) {
        return Some((bare.to_owned(), runtime_of(parent)));
    }
    let by_id = bare.rsplit_once(['-', ':']).filter(|(_, id)| is_id(id));
    if let Some((prefix, id)) = by_id {
        return Some((id.to_owned(), runtime_of(prefix)));
    }
    let lxc = bare.strip_prefix("lxc.payload.").or_else(|| (parent == "lxc").then_some(bare));
    let nspawn = bare.strip_prefix("machine-").filter(|name| part.ends_with(".scope") && !name.starts_with("qemu"));
    let nspawn = nspawn.or_else(|| bare.strip_prefix("systemd-nspawn@").and_then(|name| name.strip_suffix(".service")));
    lxc.map(|name| (name.to_owned(), "lxc")).or_else(|| nspawn.map(|name| (name.replace("\\x2d", "-"), "nspawn")))
}

fn runtime_of(word: &str) -> &'static str {
    const RUNTIMES: [(&str, &str); 5] = [
        ("docker", "docker"),
        ("containerd", "containerd"),
        ("crio", "crio"),
        ("libpod", "podman"),
        ("garden", "garden"),
    ];
    RUNTIMES.iter().find(|(part, _)| word.contains(part)).map_or("unknown", |(_, runtime)| runtime)
}

/// Every runtime's ids are 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `pod<uid>` with the uid's dashes, or as systemd slices write it, with underscores.
fn pod_in(part: &str) -> Option<String> {
    let bare = part.strip_suffix(".slice").unwrap_or(part);
    let uid = bare.rsplit_once("pod").map(|(_, uid)| uid.replace('_', "-"))?;
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4a9c1b2d5e6f708192a3b4c5d6e7f80112233445566778899aabbccddeeff0";
    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn identity(path: &str) -> Option<(String, &'static str, Option<String>)> {
        identity_of(path).map(|identity| (identity.id, identity.runtime, identity.pod))
    }

    #[test]
    fn every_runtime_is_recognised() {
        let is = |runtime, pod: Option<&str>| Some((ID.to_owned(), runtime, pod.map(str::to_owned)));
        assert_eq!(identity(&format!("/docker/{ID}")), is("docker", None));
        assert_eq!(identity(&format!("/system.slice/docker-{ID}.scope")), is("docker", None));
        assert_eq!(identity(&format!("/machine.slice/libpod-{ID}.scope/container")), is("podman", None));
        assert_eq!(identity(&format!("/kubepods/burstable/pod{UID}/{ID}")), is("unknown", Some(UID)));
        let slice = format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{ID}.scope", UID.replace('-', "_"));
        assert_eq!(identity(&slice), is("containerd", Some(UID)));
        assert_eq!(identity(&format!("/kubepods-x/pod1:cri-containerd:{ID}")), is("containerd", None));
        assert_eq!(identity(&format!("/kubepods.slice/crio-{ID}.scope")), is("crio", None));
    }

    #[test]
    fn containers_without_id_go_by_their_name() {
        assert_eq!(identity("/lxc.payload.web/init.scope"), Some(("web".to_owned(), "lxc", None)));
        assert_eq!(identity("/lxc/web"), Some(("web".to_owned(), "lxc", None)));
        assert_eq!(identity(r"/machine.slice/machine-my\x2dbox.scope"), Some(("my-box".to_owned(), "nspawn", None)));
    }

    #[test]
    fn services_and_vms_are_no_containers() {
        for path in
            ["/", "", "/system.slice/ssh.service", r"/machine.slice/machine-qemu\x2d1\x2dvm.scope", "/user.slice/pod"]
        {
            assert_eq!(identity(path), None, "{path}");
        }
    }

    #[test]
    fn a_kubelet_log_names_its_container() {
        let name = name_in_log(&format!("web-5d_prod_nginx-{ID}.log"));
        assert_eq!(name, Some((ID.to_owned(), "web-5d/nginx".to_owned())));
        assert_eq!(name_in_log("stray.log"), None);
    }
}
