// A transfer: one request's passage between a volume and the memory that its owner fills or sends.
// The volume never sees a socket and the owner never owns payload memory: the transfer lends it,
// chunk by chunk, and a lent chunk's page cannot be reused before the chunk is given back.
//
// All of a transfer happens on the thread of its channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

class Transfer;

class TransferOwner {
 public:
    // From Channel::poll(): a read has chunks to take, a write has memory to lend or has ended, a
    // zero has ended; or the transfer has failed.
    virtual void transfer_moved(Transfer& transfer) = 0;

 protected:
    ~TransferOwner() = default;
};

// What one client has of a worker's channels: bytes of staging memory that it holds in each
// direction (StagingArena::take), and work that is deferred.
struct ClientAccount {
    std::size_t reads = 0;
    std::size_t writes = 0;
    DeferredOfClient deferred;
};

// What transfers of one client work with. It outlives them.
struct TransferContext {
    Volume& volume;
    Channels& channels;
    ClientAccount& account;
};

// Bytes of a volume; within it.
struct Range {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

class Transfer : private CopyOwner, private StagingWaiter, private PageAsker {
 public:
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    Status status() const { return status_; }

 protected:
    static constexpr std::uint32_t window = 8;  // chunks in flight or lent at once

    struct Chunk {
        enum class State : std::uint8_t { moving, ready };
        Copy copy;
        PageRef page;
        std::byte* memory = nullptr;  // lent: the mapping or staging; null: a hole
        std::uint64_t offset = 0;     // in the volume, bytes
        std::uint32_t length = 0;     // bytes
        State state = State::ready;
        bool staged = false;
    };

    Transfer() = default;
    ~Transfer() override = default;

    void start(const TransferContext& context, TransferOwner& owner, Range range);

    bool window_full() const { return issued_ - returned_ == window; }
    Chunk& chunk(std::uint32_t number) { return chunks_[number % window]; }
    const Chunk& chunk(std::uint32_t number) const { return chunks_[number % window]; }
    // The next chunk starts at position_ and ends with its page or with the range.
    std::uint32_t next_length() const;
    // The page at position_, to write to. Nothing: it is being made, and advance() is called when
    // it has been.
    std::optional<Status> acquire(PageRef& page);
    // Until then the transfer cannot end.
    bool asking() const { return request_.under_way; }
    // Describes the chunk's copy; its page, offset and length are set.
    void prepare_copy(Chunk& chunk, Copy::Kind kind, std::byte* staging);
    // Lends staging memory to a chunk and prepares its copy; false: none can be had now, and
    // advance() is called when there is.
    bool stage(Chunk& chunk, Copy::Kind kind, Channel& channel, StagingArena& arena,
               std::size_t& held);

    void unstage(Chunk& chunk, StagingArena& arena, std::size_t& held);

    // The chunk that starts at position_ is alive from here on.
    void issue(const Chunk& chunk);
    void stop_waiting();

    // Issues what can be issued. Called again whenever something may have changed.
    virtual void advance() = 0;
    virtual void chunk_moved(Chunk& chunk) = 0;

    Volume* volume_ = nullptr;
    Channels* channels_ = nullptr;
    ClientAccount* account_ = nullptr;
    TransferOwner* owner_ = nullptr;
    std::uint64_t position_ = 0;  // where the next chunk starts
    std::uint64_t end_ = 0;
    std::uint32_t issued_ = 0;  // chunk numbers, ever growing: [returned_, issued_) are alive
    std::uint32_t returned_ = 0;
    std::uint32_t staged_ = 0;    // chunks alive that hold staging memory
    std::uint32_t recycled_ = 0;  // bytes of staging memory that it gave back last
    Status status_ = Status::ok;
    std::uint64_t failed_at_ = 0;  // where the chunk starts that status_ is about

 private:
    void copy_done(Copy& copy) final;
    void staging_available() final;
    void page_answered() final;

    std::array<Chunk, window> chunks_;
    PageRequest request_;
    StagingArena* waiting_at_ = nullptr;  // where it waits for staging memory
};

}  // namespace gpunbd::storage
