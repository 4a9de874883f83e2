// Moves pages between the pools of a volume, several at a time, through channels of its own.
// Clients keep reading the pages; those that write to one wait until it has moved.
#pragma once

#include <array>
#include <cstdint>

#include "storage/devices/channels.hpp"
#include "storage/migration/move_queue.hpp"

namespace gpunbd::storage {

class PageMover {
 public:
    // Enough to copy on the device while the CPU copies too. More would let writers wait longer.
    static constexpr std::size_t pages_at_a_time = 4;

    // For the calling thread, which also destroys it.
    explicit PageMover(const ChannelOptions& options) : channels_(options) {}

    // Throws what Device::open_channel() throws.
    void open(Device& device) { channels_.open(device); }
    // Moves pages of the queue until none is left, and sets their outcomes. Other movers may take
    // pages of the same queue. Blocks. The channels of all these devices are open.
    void move(MoveQueue& queue) noexcept;

 private:
    // One page on its way. It is copied in chunks, one after another.
    class Move final : private CopyOwner {
     public:
        bool idle() const { return state_ == State::idle; }
        // False: the page does not move.
        bool begin(PageToMove& page);
        // Continues as far as possible without waiting. False: nothing was possible. Idle
        // afterwards: the move has ended.
        bool advance(Channels& channels);

     private:
        enum class State : std::uint8_t {
            idle,
            next_chunk,
            reading,
            read,
            writing,
            written,
            failed
        };

        // False: there is no staging memory now.
        bool start_read(Channels& channels);
        bool start_write(Channels& channels);
        void end_chunk(Channels& channels);
        void commit();
        void fail(Channels& channels);
        void end(PageToMove::Outcome outcome);
        void release_staging(Channels& channels);
        void copy_done(Copy& copy) override;

        State state_ = State::idle;
        PageToMove* page_ = nullptr;
        PagePool* to_ = nullptr;
        PageRef source_;
        PageIndex target_ = 0;
        std::uint64_t at_ = 0;             // of the chunk within the page
        std::uint32_t length_ = 0;         // of the chunk
        const std::byte* data_ = nullptr;  // the contents of the chunk
        std::byte* read_staging_ = nullptr;
        std::byte* write_staging_ = nullptr;
        std::size_t read_held_ = 0;
        std::size_t write_held_ = 0;
        Copy copy_;
    };

    Channels channels_;
    std::array<Move, pages_at_a_time> moves_;
};

}  // namespace gpunbd::storage
