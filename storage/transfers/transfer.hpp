// A transfer moves the payload of one request between a volume and the memory that its owner fills
// or sends. The owner never owns payload memory: the transfer lends it in chunks, and the page of a
// lent chunk is not reused before the chunk is returned.
//
// A transfer is used on the thread of its channels only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "storage/assertions/assert.hpp"
#include "storage/base/transfer_waits.hpp"
#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

class Transfer;

class TransferOwner {
 public:
    TransferWaits waits;

    // Called from Channel::poll(): a read has pieces to take, a write has memory to lend or is
    // done, a zero is done, or the transfer has failed.
    virtual void transfer_moved(Transfer& transfer) = 0;

 protected:
    ~TransferOwner() = default;
};

// What one client uses of a worker's channels: its staging memory in bytes (see
// StagingArena::take), and its deferred work.
struct ClientAccount {
    std::size_t reads = 0;
    std::size_t writes = 0;
    DeferredQueue deferred;
    bool light = false;  // its copies are urgent, see Copy
};

// Shared by the transfers of one client. It outlives them.
struct TransferContext {
    Volume& volume;
    Channels& channels;
    ClientAccount& account;
};

// In bytes, within the volume.
struct Range {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

class Transfer : private CopyOwner, private StagingWaiter, private PageWaiter {
 public:
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    Status status() const { return status_; }

 protected:
    static constexpr std::uint32_t window = 8;  // chunks in flight or lent at once

    struct Chunk {
        enum class State : std::uint8_t { moving, ready, stale };
        Copy copy;
        PageRef page;
        Channel* channel = nullptr;   // of the copy, if it is staged
        std::byte* memory = nullptr;  // lent: the mapping or staging; null: a hole
        std::uint64_t offset = 0;     // in the volume, bytes
        std::uint32_t length = 0;     // bytes
        State state = State::ready;
        bool staged = false;
        bool replaces = false;  // of a write: the last chunk of a page that replaces another one
    };

    Transfer() = default;
    ~Transfer() override = default;

    void start(const TransferContext& context, TransferOwner& owner, Range range);

    Chunk& chunk(std::uint32_t number) { return chunks_[number % window]; }
    const Chunk& chunk(std::uint32_t number) const { return chunks_[number % window]; }
    // The next chunk starts at position_ and ends with its page or with the range.
    std::uint32_t next_length() const {
        GPUNBD_ASSERT(position_ < end_, "the range of a request has bytes left for a chunk");
        const std::uint64_t page_left = volume_->page_size() - volume_->offset_in_page(position_);
        return static_cast<std::uint32_t>(std::min(page_left, end_ - position_));
    }
    // The page at position_, for writing; of a cache, with these parts. Empty: the page is being
    // mapped, and advance() is called then.
    std::optional<Status> acquire(PageRef& page, Parts parts = 0);
    // For reading at position_, where the source of the volume has the contents. Nothing: they are
    // being fetched, and advance() is called then. Otherwise the error.
    std::optional<Status> fetch();
    // For a call of the volume's source, which completes the request; advance() is called then.
    // cancel_request(): it does not.
    PageRequest& begin_request();
    void cancel_request() { channels_->page_completions().cancel(request_); }
    // Of the last request; see PageRequest.
    Status request_status() const { return request_.status; }
    // Whether acquire() may submit a request.
    bool can_acquire() const { return !request_.in_progress && request_.status == Status::ok; }
    // Makes the page at position_ a hole. False: it has to wait, and advance() is called then.
    bool unmap();
    // The transfer cannot end while this is true.
    bool page_requested() const { return request_.in_progress; }
    // Fills in the chunk's copy. Its page, offset and length are set.
    void prepare_copy(Chunk& chunk, Copy::Kind kind, std::byte* staging);
    // Lends staging memory to a chunk and prepares its copy. False: there is none now, and
    // advance() is called when there is.
    bool stage(Chunk& chunk, Copy::Kind kind, Channel& channel, StagingArena& arena,
               std::size_t& held);

    void unstage(Chunk& chunk, StagingArena& arena, std::size_t& held);

    // The chunk that starts at position_ is in use from now on.
    void issue(const Chunk& chunk) {
        GPUNBD_ASSERT(
            chunk.offset == position_ && chunk.length != 0 && chunk.length <= end_ - position_,
            "the chunks of a request follow each other and lie within its range");
        GPUNBD_ASSERT(volume_->offset_in_page(chunk.offset) + chunk.length <= volume_->page_size(),
                      "a chunk ends with its page at the latest");
        GPUNBD_ASSERT(issued_ - returned_ < window, "a chunk is returned before it is used again");
        position_ += chunk.length;
        ++issued_;
        // It may have waited for staging memory and got a page that needs none.
        stop_waiting();
    }
    void stop_waiting() {
        if (waiting_at_ == nullptr) return;
        waiting_at_->stop_waiting(*this);
        waiting_at_ = nullptr;
    }

    // Issues as many chunks as possible. Called again whenever that may have changed.
    virtual void advance() = 0;
    virtual void chunk_done(Chunk& chunk) = 0;
    // Whether a copy of the chunk that fails with its device is no error of the request.
    virtual bool repeats_after_failure(const Chunk& /*chunk*/) const { return false; }

    Volume* volume_ = nullptr;
    Channels* channels_ = nullptr;
    ClientAccount* account_ = nullptr;
    TransferOwner* owner_ = nullptr;
    std::uint64_t position_ = 0;  // where the next chunk starts
    std::uint64_t end_ = 0;
    std::uint32_t issued_ = 0;  // monotonic chunk numbers: [returned_, issued_) are in use
    std::uint32_t returned_ = 0;
    std::uint32_t staged_ = 0;    // chunks in use that hold staging memory
    std::uint32_t recycled_ = 0;  // bytes of the staging memory returned last
    Status status_ = Status::ok;
    std::uint64_t failed_at_ = 0;  // the offset of the chunk that failed

 private:
    void copy_done(Copy& copy) final;
    void staging_available() final;
    void page_ready() final;

    std::array<Chunk, window> chunks_;
    PageRequest request_;
    StagingArena* waiting_at_ = nullptr;  // null: not waiting for staging memory
};

}  // namespace gpunbd::storage
