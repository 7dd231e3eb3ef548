//! What goes over the wire: commands in, replies of RESP3 out.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;

/// A reply.
#[derive(Clone, Debug)]
pub enum Reply {
    Null,
    Ok,
    Int(u64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
    Error(&'static str),
}

impl Reply {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![];
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend(b"_\r\n"),
            Self::Ok => out.extend(b"+OK\r\n"),
            Self::Int(value) => out.extend(format!(":{value}\r\n").bytes()),
            Self::Text(text) => {
                out.extend(format!("${}\r\n", text.len()).bytes());
                out.extend(text);
                out.extend(b"\r\n");
            }
            Self::List(list) => {
                out.extend(format!("*{}\r\n", list.len()).bytes());
                list.iter().for_each(|reply| reply.write(out));
            }
            Self::Map(fields) => {
                out.extend(format!("%{}\r\n", fields.len()).bytes());
                for (name, value) in fields {
                    Self::Text(name.as_bytes().to_vec()).write(out);
                    value.write(out);
                }
            }
            Self::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
        }
    }
}

/// The next command; `None`: the connection is closed.
pub async fn command(from: &mut BufReader<OwnedReadHalf>) -> Option<Vec<Vec<u8>>> {
    let count = number(from, '*').await?;
    let mut arguments = vec![];
    for _ in 0..count {
        let length = number(from, '$').await?;
        let mut bytes = vec![0; length + 2];
        from.read_exact(&mut bytes).await.ok()?;
        bytes.truncate(length);
        arguments.push(bytes);
    }
    Some(arguments)
}

async fn number(from: &mut BufReader<OwnedReadHalf>, sign: char) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    Some(line.trim_end().strip_prefix(sign).expect("a command").parse().expect("a length"))
}
