//! The commands that the store sends for a pair, as they were seen at the server, to be sent again.

use ::redis::Cmd;
use testbed::RedisServer;
use tokio::runtime::Runtime;

use crate::{Failure, load, redis::site};

/// Places in a command, as swap.lua numbers its keys and arguments.
const RECORD: usize = 3;
const SETS: [usize; 2] = [4, 5];
const EXPECTED: usize = 6;
const MEMBER: usize = 7;
const HEAD: usize = 8;
const WORDS: usize = 15;

/// What differs between two pairs.
pub(crate) struct Names {
    pub(crate) digest: [u8; 32],
    pub(crate) claim: [u8; 16],
    pub(crate) end: [u8; 16],
}

/// A claim and its completion; each loop has a copy of its own, in which it writes.
#[derive(Clone)]
pub(crate) struct Sample {
    claim: Words,
    settlement: Words,
}

/// The words of one command.
#[derive(Clone)]
struct Words(Vec<Vec<u8>>);

impl Sample {
    /// Makes one pair and looks what the store sends for it.
    pub(crate) fn take(runtime: &Runtime, server: &RedisServer) -> Result<Self, Failure> {
        let (store, work) = (site::open(runtime, server)?, load::Work::default());
        let pair = async {
            let claim = load::claim(&store, &work, u64::MAX).await?;
            load::settle(&store, work.settlement(&claim)).await
        };
        let mut watch = server.watch()?;
        runtime.block_on(pair)?;
        let sent = watch.commands()?.into_iter().filter(|words| words[0] == b"EVALSHA");
        let [claim, settlement] = <[_; 2]>::try_from(sent.collect::<Vec<_>>())
            .map_err(|sent| format!("a pair is {} calls of scripts, not 2", sent.len()))?;
        Ok(Self { claim: Words::check(claim)?, settlement: Words::check(settlement)? })
    }

    /// How many bytes the store sends for a claim and for a completion.
    pub(crate) fn bytes(&self) -> [usize; 2] {
        [&self.claim, &self.settlement].map(|words| words.command().get_packed_command().len())
    }

    /// The claim of another operation.
    pub(crate) fn claim(&mut self, names: &Names) -> Cmd {
        self.claim.rename(&names.digest, &names.claim);
        self.claim.command()
    }

    /// The completion of the same operation.
    pub(crate) fn settlement(&mut self, names: &Names) -> Cmd {
        self.settlement.rename(&names.digest, &names.end);
        self.settlement.0[EXPECTED].copy_from_slice(&names.claim);
        self.settlement.command()
    }
}

impl Words {
    /// Nothing is renamed at a place that holds something else.
    fn check(words: Vec<Vec<u8>>) -> Result<Self, Failure> {
        let is_known = words.len() == WORDS
            && words[2] == b"3"
            && words[MEMBER].len() == 31
            && words[RECORD].ends_with(&words[MEMBER])
            && words[HEAD].len() == 35
            && [0, 16].contains(&words[EXPECTED].len())
            && [RECORD, SETS[0], SETS[1]].iter().all(|key| partition_in(&words[*key]).is_some());
        match is_known {
            true => Ok(Self(words)),
            false => Err("the store's command is another than this benchmark knows".into()),
        }
    }

    fn rename(&mut self, digest: &[u8; 32], fence: &[u8; 16]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let partition = [digest[0] >> 4, digest[0] & 15].map(|digit| DIGITS[usize::from(digit)]);
        for key in [RECORD, SETS[0], SETS[1]] {
            let word = &mut self.0[key];
            if let Some(at) = partition_in(word) {
                word[at..at + 2].copy_from_slice(&partition);
            }
        }
        let record = &mut self.0[RECORD];
        let start = record.len() - 31;
        record[start..].copy_from_slice(&digest[1..]);
        self.0[MEMBER].copy_from_slice(&digest[1..]);
        self.0[HEAD][2..18].copy_from_slice(fence);
    }

    fn command(&self) -> Cmd {
        let size = self.0.iter().map(|word| word.len() + 16).sum();
        let mut command = Cmd::with_capacity(self.0.len(), size);
        for word in &self.0 {
            command.arg(&word[..]);
        }
        command
    }
}

/// Where the partition is named in a key: `prefix:{a7}:…`.
fn partition_in(key: &[u8]) -> Option<usize> {
    let at = key.iter().position(|byte| *byte == b'{')? + 1;
    (key.get(at + 2) == Some(&b'}')).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_operation_has_other_names_and_the_same_length() {
        let key = |kind: &[u8], member: &[u8]| [b"onceward:{00}:", kind, member].concat();
        let mut words = vec![Vec::new(); WORDS];
        (words[2], words[MEMBER], words[HEAD]) = (b"3".to_vec(), vec![0; 31], vec![9; 35]);
        (words[3], words[4], words[5]) = (key(b"r", &[0; 31]), key(b"o", b""), key(b"e", b""));
        let mut words = Words::check(words).unwrap();
        let before = words.command().get_packed_command().len();
        words.rename(&[0xa7; 32], &[1; 16]);
        assert_eq!(words.0[3], [b"onceward:{a7}:r", &[0xa7; 31][..]].concat());
        assert_eq!(
            (&words.0[4][..], &words.0[MEMBER][..]),
            (&b"onceward:{a7}:o"[..], &[0xa7; 31][..])
        );
        assert_eq!(words.0[HEAD], [&[9; 2][..], &[1; 16], &[9; 17]].concat());
        assert_eq!(words.command().get_packed_command().len(), before);
        assert!(Words::check(vec![Vec::new(); WORDS]).is_err());
    }
}
