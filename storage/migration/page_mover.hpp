// Moves pages between the pools of a volume, several at a time, through channels of its own.
// Clients keep reading the pages; those that write to one wait until it has moved.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

class PageMover {
 public:
    struct Result {
        std::map<const PagePool*, std::uint64_t> moved;  // pages, by target
        std::uint64_t failed = 0;                        // pages that could not be read or written
        bool is_full = false;                            // no target had memory for some page
    };

    // For the calling thread, which also destroys it.
    explicit PageMover(const ChannelOptions& options) : channels_(options) {}

    // Throws what Device::open_channel() throws.
    void open(Device& device) { channels_.open(device); }
    // Moves the pages with these page numbers, if they are in pool `from`, each to the first of
    // `targets` that has memory. Pages that are being written, or that are unmapped meanwhile, do
    // not move. Blocks. The channels of all these devices are open.
    Result move(Volume& volume, PagePool& from, std::span<PagePool* const> targets,
                std::span<const std::uint64_t> numbers);

 private:
    // One page on its way. It is copied in chunks, one after another.
    class Move final : private CopyOwner {
     public:
        bool idle() const { return state_ == State::idle; }
        // False: the page does not move.
        bool begin(Volume& volume, PagePool& from, std::span<PagePool* const> targets,
                   std::uint64_t number, Result& result);
        // Continues as far as possible without waiting. Idle afterwards: the move has ended.
        void advance(Channels& channels, Result& result);

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
        void commit(Result& result);
        void fail(Channels& channels, Result& result);
        void release_staging(Channels& channels);
        void copy_done(Copy& copy) override;

        State state_ = State::idle;
        Volume* volume_ = nullptr;
        PagePool* from_ = nullptr;
        PagePool* to_ = nullptr;
        EntrySlot slot_;
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
    std::array<Move, 8> moves_;
};

}  // namespace gpunbd::storage
