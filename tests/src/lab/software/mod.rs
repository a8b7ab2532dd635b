//! Real servers, from Debian's packages: not only victims of our own.
//!
//! [`Software`] is the table: packages, how each is started, in which [`dialogue`] it is asked.
//! [`fetch`] has the packages in the user's cache; [`host`] starts a server from there, in a
//! namespace, with data of its own that end with it; [`ask`] checks its health, and [`provoke`]
//! asks it for something that takes long.

pub mod ask;
pub mod dialogue;
pub mod fetch;
pub mod golang;
pub mod host;
pub mod provoke;

use super::workload::PORT;
use dialogue::Language;
use std::path::{Path, PathBuf};

/// A server of a case.
#[derive(Debug, Clone, Copy)]
pub struct Real {
    /// Which.
    pub software: Software,
    /// What a health check asks.
    pub check: &'static [&'static str],
    /// How whylag recognises it.
    pub signature: &'static str,
    /// Each check is a connection's handshake, and nothing is asked.
    pub handshake: bool,
}

/// A server that nobody here wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Software {
    /// redis, one thread for all commands.
    Redis,
    /// redis that writes each change to its log and syncs it.
    RedisLog,
    /// nginx, a master and one worker.
    Nginx,
    /// The same, at the lab's own port, with room for few connections that are not accepted.
    NginxBacklog,
    /// `http.server` of Python, a thread for each connection.
    Python,
    /// Node.js, one event loop.
    Node,
    /// A JVM with a heap to collect, by its one collecting thread.
    Java,
    /// PostgreSQL, a process for each session, which syncs nothing.
    Postgres,
    /// PostgreSQL that syncs its log at each commit.
    PostgresLog,
}

/// A program that is started, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Under the root of the unpacked packages.
    pub program: &'static str,
    /// Arguments.
    pub args: Vec<String>,
    /// What it reads from its standard input.
    pub input: &'static str,
}

/// A file that a server is given, by its name in the server's directory.
pub type GivenFile = (&'static str, String);

impl Software {
    /// Its name on the command line, which is also that of its packages in the cache.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisLog => "redis-log",
            Self::Nginx => "nginx",
            Self::Python => "python",
            Self::Node => "node",
            Self::Java => "java",
            Self::Postgres => "postgres",
            Self::NginxBacklog => "nginx-backlog",
            Self::PostgresLog => "postgres-log",
        }
    }

    /// Its name in the cache.
    #[must_use]
    pub const fn bundle(self) -> &'static str {
        match self {
            Self::RedisLog => Self::Redis.name(),
            Self::NginxBacklog => Self::Nginx.name(),
            Self::PostgresLog => Self::Postgres.name(),
            other => other.name(),
        }
    }

    /// Packages that it consists of. The C library, and what every Debian has, are the machine's.
    #[must_use]
    pub const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Redis | Self::RedisLog => {
                &["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1", "libssl3", "libsystemd0"]
            }
            Self::Nginx | Self::NginxBacklog => &["nginx", "libpcre2-8-0", "libssl3", "zlib1g"],
            Self::Python => &[
                "python3.11-minimal",
                "libpython3.11-minimal",
                "libpython3.11-stdlib",
                "libexpat1",
                "libssl3",
                "zlib1g",
            ],
            Self::Node => &[
                "nodejs",
                "libnode108",
                "node-acorn",
                "node-cjs-module-lexer",
                "node-undici",
                "libuv1",
                "libc-ares2",
                "libnghttp2-14",
                "libicu72",
                "libssl3",
                "libbrotli1",
                "zlib1g",
            ],
            Self::Java => &["openjdk-17-jre-headless", "zlib1g"],
            Self::Postgres | Self::PostgresLog => &[
                "postgresql-15",
                "libpq5",
                "libicu72",
                "libxml2",
                "libldap-2.5-0",
                "libsasl2-2",
                "libgssapi-krb5-2",
                "libkrb5-3",
                "libk5crypto3",
                "libkrb5support0",
                "libssl3",
                "zlib1g",
            ],
        }
    }

    /// Parts of the packages that no case uses, for `tar`.
    #[must_use]
    pub const fn unread(self) -> &'static [&'static str] {
        match self {
            Self::Postgres | Self::PostgresLog => {
                &["--exclude=./usr/lib/postgresql/*/lib/bitcode", "--exclude=./usr/share/locale"]
            }
            _ => &[],
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Redis | Self::RedisLog => 6379,
            Self::Postgres | Self::PostgresLog => 5432,
            Self::NginxBacklog => PORT,
            Self::Nginx | Self::Python | Self::Node | Self::Java => 8080,
        }
    }

    /// What it writes to its log when it is ready, if it listens before.
    #[must_use]
    pub const fn ready_line(self) -> Option<&'static str> {
        match self.language() {
            Language::Postgres => Some("ready to accept connections"),
            Language::Redis | Language::Http => None,
        }
    }

    /// How it is spoken to.
    #[must_use]
    pub const fn language(self) -> Language {
        match self {
            Self::Redis | Self::RedisLog => Language::Redis,
            Self::Postgres | Self::PostgresLog => Language::Postgres,
            Self::Nginx | Self::NginxBacklog | Self::Python | Self::Node | Self::Java => Language::Http,
        }
    }

    /// The command before its own, for one that does not run as it is: words to execute it with.
    #[must_use]
    pub fn wrapper(self, root: &Path) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            // It refuses to run as root. Here root calls itself otherwise, and no more.
            Self::Postgres | Self::PostgresLog => words(&["unshare", "--user", "--map-user=1000"]),
            // It has a part of its own code under /usr/share, wherever else it lies.
            Self::Node => {
                let share = root.join("usr/share");
                let overlay = format!("mount -t overlay share -o lowerdir={}:/usr/share /usr/share", share.display());
                words(&["unshare", "--mount", "sh", "-c", &format!("{overlay} && exec \"$@\""), "sh"])
            }
            Self::Redis | Self::RedisLog | Self::Python | Self::Java => Vec::new(),
            Self::Nginx | Self::NginxBacklog => Vec::new(),
        }
    }

    /// The files that it is given: programs in `dir`, and what it serves in `data`.
    #[must_use]
    pub fn files(self, dir: &Path, data: &Path) -> Vec<GivenFile> {
        match self {
            Self::Nginx => vec![("nginx.conf", nginx_conf(dir, data, "8080"))],
            Self::NginxBacklog => vec![("nginx.conf", nginx_conf(dir, data, &format!("{PORT} backlog=2")))],
            Self::Python => vec![("server.py", include_str!("server.py").to_owned())],
            Self::Node => vec![("server.js", include_str!("server.js").to_owned())],
            Self::Java => vec![("Server.java", include_str!("Server.java").to_owned())],
            Self::Postgres | Self::PostgresLog => vec![("hba.conf", "host all all 0.0.0.0/0 trust\n".to_owned())],
            Self::Redis | Self::RedisLog => Vec::new(),
        }
    }

    /// What is to be run to its end before the server starts.
    #[must_use]
    pub fn preparations(self, data: &Path) -> Vec<Start> {
        if self.language() != Language::Postgres {
            return Vec::new();
        }
        let data = data.join("base").display().to_string();
        let initdb = ["-D", &data, "-A", "trust", "-U", "lab", "-E", "UTF8", "--locale=C", "--no-sync"];
        let single = ["--single", "-D", &data, "-c", "fsync=off", "postgres"];
        vec![
            start("usr/lib/postgresql/15/bin/initdb", &initdb),
            Start {
                input: "CREATE TABLE health AS SELECT 0 AS beat\n",
                ..start("usr/lib/postgresql/15/bin/postgres", &single)
            },
        ]
    }

    /// The server itself.
    #[must_use]
    pub fn server(self, dir: &Path, data: &Path) -> Start {
        let (in_dir, data) = (|name: &str| dir.join(name).display().to_string(), data.display().to_string());
        match self {
            Self::Redis => redis(&data, "no"),
            Self::RedisLog => redis(&data, "yes"),
            Self::Nginx | Self::NginxBacklog => start("usr/sbin/nginx", &["-e", "stderr", "-c", &in_dir("nginx.conf")]),
            Self::Python => start("usr/bin/python3.11", &["-I", "-B", &in_dir("server.py")]),
            Self::Node => start("usr/bin/node", &[&in_dir("server.js")]),
            Self::Java => {
                start(JAVA, &["-XX:+UseSerialGC", "-Xms768m", "-Xmx768m", "-Xlog:gc", &in_dir("Server.java")])
            }
            Self::Postgres => postgres(&data, &in_dir("hba.conf"), &["fsync=off", "synchronous_commit=off"]),
            Self::PostgresLog => postgres(&data, &in_dir("hba.conf"), &["fsync=on", "synchronous_commit=on"]),
        }
    }
}

const JAVA: &str = "usr/lib/jvm/java-17-openjdk-amd64/bin/java";

fn start(program: &'static str, args: &[&str]) -> Start {
    Start { program, args: args.iter().map(|arg| (*arg).to_owned()).collect(), input: "" }
}

fn redis(data: &str, log: &str) -> Start {
    let plain = ["--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--enable-debug-command", "yes"];
    let log = ["--dir", data, "--appendonly", log, "--appendfsync", "always"];
    start("usr/bin/redis-server", &[plain.as_slice(), &log].concat())
}

/// `commits` are settings that say what a commit syncs.
fn postgres(data: &str, clients: &str, commits: &[&str]) -> Start {
    let (base, clients) = (format!("{data}/base"), format!("hba_file={clients}"));
    // Its timer for deadlocks goes off during later waits too, and nothing shows what it was for.
    let settings = ["deadlock_timeout=1h", "autovacuum=off", "jit=off", "unix_socket_directories=", &clients];
    let mut args = vec!["-D", &base, "-h", "0.0.0.0"];
    args.extend(settings.iter().chain(commits).flat_map(|setting| ["-c", setting]));
    start("usr/lib/postgresql/15/bin/postgres", &args)
}

/// Static files are read past the page cache, as servers of big files are set up.
fn nginx_conf(dir: &Path, data: &Path, listen: &str) -> String {
    let (dir, data) = (dir.display(), data.display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.iter().map(|kind| format!("  {kind}_temp_path {dir}/{kind};\n")).collect();
    format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {dir}/pid;\nevents {{}}\nhttp {{\n{temporary}  \
         access_log off;\n  keepalive_requests 1000000;\n  server {{\n    listen {listen};\n    \
         location = /health {{ return 200 ok; }}\n    location / {{ root {data}; directio 1; output_buffers 1 2k; }}\n  }}\n}}\n"
    )
}

/// The file that nginx serves from the disk.
pub const STATIC_FILE: &str = "static";

/// The directory of the server that a lab with this process number hosts.
#[must_use]
pub fn server_dir(lab: u32) -> PathBuf {
    std::env::temp_dir().join(format!("whylag-lab-server-{lab}"))
}

/// Where a server keeps what it writes, if not on a disk of the case.
#[must_use]
pub fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}
