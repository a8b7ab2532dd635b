//! Signatures that come with whylag.

/// One preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// What users call it.
    pub name: &'static str,
    /// What it recognises.
    pub meaning: &'static str,
    /// Its rules, in text form.
    pub rules: &'static [&'static str],
    /// What it cannot see.
    pub blind: &'static str,
}

/// All presets, in the order they are listed.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "icmp-echo",
        meaning: "ping over IPv4 and IPv6, told apart by identifier and sequence",
        rules: &[
            "icmp:at=0,bytes=0800,nonce=4+4,reply-at=0,reply-bytes=0000",
            "icmp:at=0,bytes=8000,nonce=4+4,reply-at=0,reply-bytes=8100",
        ],
        blind: "the kernel answers: it says nothing about any process",
    },
    Preset {
        name: "udp-echo",
        meaning: "datagrams that port 7 sends back as they are (RFC 862)",
        rules: &["udp:port=7,len=8..,nonce=0+8"],
        blind: "payloads below 8 bytes; checks whose first 8 bytes repeat",
    },
    Preset {
        name: "stun",
        meaning: "STUN Binding with its success or error response (RFC 8489), any port; over TCP \
                  also with the length before it that ICE uses (RFC 4571)",
        rules: &[
            "udp:at=0,bytes=0001,at=4,bytes=2112a442,nonce=8+12,\
             reply-at=0,reply-bytes=0101,reply-mask=ffef,reply-at=4,reply-bytes=2112a442",
            "tcp:at=0,bytes=0001,at=4,bytes=2112a442,nonce=8+12,\
             reply-at=0,reply-bytes=0101,reply-mask=ffef,reply-at=4,reply-bytes=2112a442",
            "tcp:at=2,bytes=0001,at=6,bytes=2112a442,nonce=10+12,\
             reply-at=2,reply-bytes=0101,reply-mask=ffef,reply-at=6,reply-bytes=2112a442",
        ],
        blind: "over TCP, messages that are not first in their segment; anything inside TLS",
    },
    Preset {
        name: "dns",
        meaning: "DNS queries and responses on port 53, UDP and TCP, by message id",
        rules: &[
            "udp:port=53,len=12..,at=2,bytes=00,mask=80,nonce=0+2,\
             reply-len=12..,reply-at=2,reply-bytes=80,reply-mask=80",
            "tcp:port=53,len=14..,at=4,bytes=00,mask=80,nonce=2+2,\
             reply-len=14..,reply-at=4,reply-bytes=80,reply-mask=80",
        ],
        blind: "over TCP, messages that are not first in their segment or come without their \
                length prefix; DNS over TLS or HTTPS",
    },
    Preset {
        name: "http",
        meaning: "HTTP/1 GET, HEAD and POST, any port, in order on each connection",
        rules: &[
            r#"tcp:at=0,bytes="GET /",reply-at=0,reply-bytes="HTTP/1.""#,
            r#"tcp:at=0,bytes="HEAD /",reply-at=0,reply-bytes="HTTP/1.""#,
            r#"tcp:at=0,bytes="POST /",reply-at=0,reply-bytes="HTTP/1.""#,
        ],
        blind: "HTTPS, HTTP/2 and gRPC; messages that do not begin a segment; other methods",
    },
    Preset {
        name: "tcp-connect",
        meaning: "the first two packets of a TCP handshake, any port",
        rules: &["tcp:flags=syn,reply-flags=syn+ack"],
        blind: "the kernel answers: a process that does not accept looks healthy until its accept queue is full",
    },
    Preset {
        name: "redis-ping",
        meaning: "Redis PING and +PONG on port 6379, in order on each connection",
        rules: &[
            r#"tcp:port=6379,at=0,bytes="*1\r\n$4\r\n",at=8,bytes="PING\r\n",mask=dfdfdfdfffff,reply-at=0,reply-bytes="+PONG""#,
            r#"tcp:port=6379,at=0,bytes="PING\r\n",mask=dfdfdfdfffff,reply-at=0,reply-bytes="+PONG""#,
        ],
        blind: "PING with an argument, pipelined behind another command, or inside TLS",
    },
    Preset {
        name: "sip-options",
        meaning: "SIP OPTIONS over UDP or TCP, any port, in order on each flow",
        rules: &[
            r#"udp:at=0,bytes="OPTIONS sip",reply-at=0,reply-bytes="SIP/2.0 ""#,
            r#"tcp:at=0,bytes="OPTIONS sip",reply-at=0,reply-bytes="SIP/2.0 ""#,
        ],
        blind: "which request a response answers, when other SIP requests share the flow",
    },
    Preset {
        name: "discord-voice",
        meaning: "8-byte voice pings, 1337cafe and a sequence number, answered in kind, any port",
        rules: &["udp:len=8,at=0,bytes=1337cafe,nonce=4+4"],
        blind: "direction, from one packet alone: the first of a pair is the request",
    },
];

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
