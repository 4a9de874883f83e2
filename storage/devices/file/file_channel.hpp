// A channel to a file. Copies of whole blocks are read into and written from staging memory. Others
// pass through a bounce buffer, and a write reads the blocks at its ends first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "storage/devices/channel.hpp"
#include "storage/devices/file/file_state.hpp"

namespace gpunbd::storage {

class FileChannel final : public Channel {
 public:
    // `state` outlives the channel. Throws std::bad_alloc and std::system_error.
    FileChannel(const ChannelOptions& options, FileState& state);
    ~FileChannel() override;

    bool receives_into(const Slab&, std::uint32_t) const override { return false; }
    // The kernel completes much of the I/O on threads, some of which have normal priority.
    bool waits_for_threads() const override { return unfinished() != 0 && budget_ != 0; }

 protected:
    void progress(CopyQueue& queued) override;

 private:
    struct Operation;
    struct OperationIo : FileIo {
        Operation* operation = nullptr;
    };
    // A block of which a write or a zero covers only a part.
    struct Edge {
        std::uint64_t block = 0;
        std::byte* memory = nullptr;  // the contents of the block
        bool fetched = false;         // has been read from the file
    };
    // One copy in progress. It holds the lock on its blocks from begin() until end().
    struct Operation {
        Copy* copy = nullptr;  // null: this operation is free
        BlockLock lock;
        BlockRange blocks;
        std::byte* memory = nullptr;   // of all blocks; of a zero: of its edges
        std::size_t bounce_bytes = 0;  // 0: `memory` is the staging memory of the copy
        std::size_t bounce_held = 0;   // as the arena counts them
        std::array<Edge, 2> edges;
        std::uint32_t edge_count = 0;
        std::array<OperationIo, 2> ios;
        std::uint32_t in_flight = 0;  // of `ios`
        bool storing = false;
        int error = 0;  // errno
        Operation* next = nullptr;
    };
    // Each may have two reads or writes in flight.
    static constexpr std::uint32_t max_operations = FileQueue::depth / 2;

    // Begins the first copy. False: there is no bounce buffer at present.
    bool begin_next(CopyQueue& queued);
    bool find_memory(Operation& operation);
    void find_edges(Operation& operation);
    void start(Operation& operation);
    void start_read(Operation& operation);
    void fetch_edges(Operation& operation);
    void store(Operation& operation);
    void store_zeroes(Operation& operation);
    void io_ended(OperationIo& io);
    void finish_read(Operation& operation);
    void end(Operation& operation);

    void add_io(Operation& operation, bool write, std::byte* memory, BlockRange blocks);
    void encrypt(Operation& operation, std::byte* memory, BlockRange blocks);
    void decrypt(Operation& operation, std::byte* memory, BlockRange blocks);
    void spend(std::uint64_t bytes) { budget_ -= std::min(budget_, bytes); }

    FileState& state_;
    const PrivateMemory memory_;  // read staging, write staging, bounce buffers
    StagingArena bounce_;
    std::optional<BlockCipher> cipher_;
    std::vector<Operation> operations_;
    ChainedQueue<Operation> free_;
    ChainedQueue<Operation> locked_out_;  // wait for the locks of others
    std::uint32_t locked_out_count_ = 0;
    std::uint64_t budget_ = 0;  // bytes that the CPU may still encrypt or copy in this poll
    std::unique_ptr<FileQueue> queue_;
};

}  // namespace gpunbd::storage
