// A stream whose progress the CPU polls: groups of copies end in the order of submission, and a
// number in pinned memory counts the ended groups.
#pragma once

#include <array>
#include <cstdint>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"

namespace gpunbd::storage::cuda {

class StreamCounter {
 public:
    // `word` is pinned, zeroed and used by this object only. Throws std::runtime_error.
    StreamCounter(int ordinal, Stream::Priority priority, std::uint32_t* word);

    cudaStream_t stream() const { return stream_.get(); }
    std::uint32_t* word() const { return word_; }

    bool idle() const { return first_ == next_ && open_.empty(); }
    std::uint32_t in_flight() const { return next_ - first_; }
    bool full() const { return in_flight() == depth; }

    // The copies of the open group, which has room for one more unless full(). The work that is
    // submitted to stream() for them has to end by setting *word() to number().
    CopyQueue& open() { return open_; }
    std::uint32_t number() const { return next_ + 1; }
    // The open group has been submitted.
    void close();

    // If the oldest group has ended, moves its copies to `ended`.
    bool take_ended(CopyQueue& ended);
    // Moves all copies to `ended`, in flight or not.
    void take_all(CopyQueue& ended);
    // The oldest copy in flight, or null.
    const Copy* oldest() const;

 private:
    static constexpr std::uint32_t depth = 128;  // groups in flight

    Stream stream_;
    std::uint32_t* word_;
    CopyQueue open_;
    std::array<CopyQueue, depth> groups_;
    std::uint32_t first_ = 0;  // groups [first_, next_) are in flight; both wrap around
    std::uint32_t next_ = 0;
};

}  // namespace gpunbd::storage::cuda
