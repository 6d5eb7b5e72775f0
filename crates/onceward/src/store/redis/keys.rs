//! The names of keys. What belongs to one operation lies in one of 256 partitions, each in one slot of a cluster.

use onceward_core::{Digest, Fence};

/// How many partitions there are: one for each first byte of a digest.
pub(super) const PARTITIONS: usize = 256;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// Makes the names of keys behind the prefix of an installation.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// `prefix:{a7}:` for each partition.
    partitions: Box<[Vec<u8>]>,
    prefix: String,
}

/// The partition of a digest.
pub(super) fn partition(id: &Digest) -> u8 {
    id.0[0]
}

/// How a record is called inside its partition: its digest without the byte that names the partition.
pub(super) fn member(id: &Digest) -> &[u8] {
    &id.0[1..]
}

/// The digest of a member of a partition.
pub(super) fn digest(partition: u8, member: &[u8]) -> Option<Digest> {
    let mut id = [partition; 32];
    id[1..].copy_from_slice(member.get(..31).filter(|_| member.len() == 31)?);
    Some(Digest(id))
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let partitions =
            (0..=u8::MAX).map(|number| format!("{prefix}:{{{number:02x}}}:").into_bytes());
        Self { partitions: partitions.collect(), prefix: prefix.to_owned() }
    }

    pub(super) fn open(&self, partition: u8) -> Vec<u8> {
        self.named(partition, b'o', &[], &[])
    }

    pub(super) fn ended(&self, partition: u8) -> Vec<u8> {
        self.named(partition, b'e', &[], &[])
    }

    pub(super) fn record(&self, id: &Digest) -> Vec<u8> {
        self.named(partition(id), b'r', member(id), &[])
    }

    pub(super) fn trail(&self, id: &Digest) -> Vec<u8> {
        self.named(partition(id), b't', member(id), &[])
    }

    pub(super) fn chunks(&self, id: &Digest, fence: Fence) -> Vec<u8> {
        self.named(partition(id), b's', member(id), fence.as_bytes())
    }

    /// What a caller writes who waits until replicas have what others wrote.
    pub(super) fn mark(&self, partition: u8) -> Vec<u8> {
        self.named(partition, b'm', &[], &[])
    }

    fn named(&self, partition: u8, kind: u8, member: &[u8], fence: &[u8]) -> Vec<u8> {
        let start = &self.partitions[usize::from(partition)];
        let mut key = Vec::with_capacity(start.len() + 1 + member.len() + fence.len());
        key.extend_from_slice(start);
        key.push(kind);
        key.extend_from_slice(member);
        key.extend_from_slice(fence);
        key
    }

    /// The names of routes, in the first partition.
    pub(super) fn routes(&self) -> Vec<u8> {
        self.named(0, b'R', &[], &[])
    }

    /// When a process last suspected the clock, in the first partition.
    pub(super) fn suspected(&self) -> Vec<u8> {
        self.named(0, b'C', &[], &[])
    }

    /// What all keys match that begin with this prefix, and no others.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for letter in self.prefix.chars() {
            if "*?[]\\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + ":{*"
    }

    /// The channel on which processes tell each other what has ended.
    pub(super) fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }
}

/// The slot of a partition.
pub(super) fn slot(partition: u8) -> u16 {
    checksum(format!("{partition:02x}").as_bytes()) % SLOTS
}

/// CRC-16 as clusters count it (XMODEM).
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            let shifted = sum << 1;
            if sum & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(checksum(b"123456789"), 0x31c3);
        // CLUSTER KEYSLOT x:{00}:r and x:{a7}:r
        assert_eq!((slot(0x00), slot(0xa7)), (13_254, 16_047));
    }

    #[test]
    fn names_tell_the_partition_and_the_digest() {
        let keys = Keys::new("shop");
        let id = Digest([0xa7; 32]);
        let record = keys.record(&id);
        assert_eq!(record.strip_prefix(b"shop:{a7}:r"), Some(&[0xa7; 31][..]));
        assert_eq!(digest(partition(&id), member(&id)), Some(id));
        assert_eq!(digest(1, b"short"), None);
        assert_eq!(Keys::new("a*b").pattern(), r"a\*b:{*");
        let fence = Fence::from_random([3; 16]);
        assert_eq!(keys.chunks(&id, fence).len(), record.len() + 16);
    }
}
