//! How large batches are: a histogram in powers of two, cheap enough to be always on.

/// Declares the histogram: names of the counters and the largest batch each counts.
macro_rules! histogram {
    ($($(#[$doc:meta])* $field:ident <= $largest:literal,)*) => {
        crate::counters! {
            /// How many batches there were of which size, in powers of two: the table of one stage
            /// (a device queue, a soft ring, a squeue, TCP).
            pub struct BatchSizes {
                $($(#[$doc])* $field,)*
            }
        }

        impl BatchSizes {
            /// The largest batch that each counter counts, in the order of declaration.
            pub const LARGEST: &'static [usize] = &[$($largest,)*];

            /// Counts a batch of `frames`; one of none is not counted.
            #[inline]
            pub fn add(&mut self, frames: usize) {
                match frames {
                    0 => {}
                    $(..=$largest => self.$field += 1,)*
                    _ => self.batches_of_257_up += 1,
                }
            }
        }
    };
}

histogram! {
    /// One frame alone.
    batches_of_1 <= 1,
    /// Two frames.
    batches_of_2 <= 2,
    /// Three or four.
    batches_of_3_to_4 <= 4,
    /// Five to eight.
    batches_of_5_to_8 <= 8,
    /// Nine to sixteen.
    batches_of_9_to_16 <= 16,
    /// Seventeen to 32.
    batches_of_17_to_32 <= 32,
    /// 33 to 64.
    batches_of_33_to_64 <= 64,
    /// 65 to 128.
    batches_of_65_to_128 <= 128,
    /// 129 to 256.
    batches_of_129_to_256 <= 256,
    /// Larger ones.
    batches_of_257_up <= 0x7fff_ffff,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_place() {
        let mut sizes = BatchSizes::default();
        for frames in [0, 1, 2, 3, 4, 5, 8, 9, 256, 257, usize::MAX] {
            sizes.add(frames);
        }
        let mut counts = Vec::new();
        sizes.for_each(&mut |_, count| counts.push(count));
        assert_eq!(counts, [1, 1, 2, 2, 1, 0, 0, 0, 1, 2]);
        assert_eq!(BatchSizes::LARGEST.len(), counts.len());
    }
}
