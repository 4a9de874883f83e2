#include "storage/devices/file/file_channel.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/devices/file/file_io.hpp"

namespace gpunbd::storage {

namespace {

// The CPU encrypts, decrypts and copies to bounce buffers. One poll does about 0.1 ms of that, so
// that other clients make progress.
constexpr std::uint64_t file_work_per_poll = 512 << 10;  // bytes
constexpr std::uint32_t file_chunk = 256 << 10;          // bytes
constexpr std::size_t least_bounce = 2 << 20;            // bytes

ChannelOptions with_file_chunks(ChannelOptions options) {
    if (options.chunk_size == 0) options.chunk_size = file_chunk;
    return options;
}

// Room for two copies of the greatest length, with a block more at either end.
std::size_t bounce_bytes_for(std::uint32_t chunk) {
    return std::max(least_bounce, 2 * std::bit_ceil(std::size_t{chunk} + 2 * block_bytes));
}

}  // namespace

FileChannel::FileChannel(const ChannelOptions& options, FileState& state)
    : Channel(with_file_chunks(options)),
      state_(state),
      memory_(2 * options_.pinned + bounce_bytes_for(options_.chunk_size)),
      operations_(max_operations) {
    read_staging_.assign(memory_.data(), options_.pinned);
    write_staging_.assign(memory_.data() + options_.pinned, options_.pinned);
    bounce_.assign(memory_.data() + 2 * options_.pinned, bounce_bytes_for(options_.chunk_size));
    if (state_.key) cipher_.emplace(*state_.key);
    for (Operation& each : operations_) free_.push(each);
    if (state_.threads) {
        queue_ = std::make_unique<ThreadQueue>(*state_.threads);
        return;
    }
    auto ring = std::make_unique<UringQueue>(state_.file.descriptor(), memory_);
    LogLine(spdlog::level::info,
            !ring->registered() && !state_.unregistered_reported.exchange(true))
        .with("device", state_.id)
        .log(
            "{}: the kernel maps its memory for every copy, because RLIMIT_MEMLOCK is too low to "
            "register it (LimitMEMLOCK=, ulimit -l)",
            state_.id);
    queue_ = std::move(ring);
}

FileChannel::~FileChannel() {
    queue_.reset();
    for (Operation& each : operations_) {
        if (each.copy != nullptr) state_.locks.release(each.lock);
    }
}

void FileChannel::progress(CopyQueue& queued) {
    budget_ = file_work_per_poll;
    while (budget_ != 0) {
        FileIo* const io = queue_->completed();
        if (io == nullptr) break;
        io_ended(static_cast<OperationIo&>(*io));
    }
    for (std::uint32_t left = std::exchange(locked_out_count_, 0); left != 0; --left) {
        Operation& operation = *locked_out_.pop();
        if (budget_ != 0 && operation.lock.granted()) {
            start(operation);
        } else {
            locked_out_.push(operation);
            ++locked_out_count_;
        }
    }
    while (budget_ != 0 && !queued.empty() && !free_.empty() && begin_next(queued)) {
    }
    queue_->submit();
}

bool FileChannel::begin_next(CopyQueue& queued) {
    Copy& copy = *queued.front();
    Operation& operation = *free_.front();
    GPUNBD_ASSERT(operation.copy == nullptr && operation.in_flight == 0,
                  "a free operation has no copy and no I/O");
    operation.copy = &copy;
    operation.blocks = BlockRange::around(copy.address, copy.length);
    operation.edge_count = 0;
    operation.in_flight = 0;
    operation.storing = false;
    operation.error = 0;
    if (copy.kind != Copy::Kind::read) find_edges(operation);
    if (!find_memory(operation)) {
        operation.copy = nullptr;
        return false;
    }
    free_.pop();
    queued.pop();  // before the copy ends, since its owner may enqueue it again then
    count(PathKind::file, copy);
    state_.locks.request(
        operation.lock, operation.blocks,
        copy.kind == Copy::Kind::read ? BlockLock::Kind::shared : BlockLock::Kind::exclusive);
    if (operation.lock.granted()) {
        start(operation);
    } else {
        locked_out_.push(operation);
        ++locked_out_count_;
    }
    return true;
}

void FileChannel::find_edges(Operation& operation) {
    const Copy& copy = *operation.copy;
    const std::uint64_t end = copy.address + copy.length;
    const auto add = [&](std::uint64_t block) {
        operation.edges[operation.edge_count++] = {.block = block};
    };
    GPUNBD_ASSERT(operation.blocks.count() != 0, "a copy touches a block");
    if (copy.address % block_bytes != 0) add(operation.blocks.first);
    if (end % block_bytes == 0) return;
    const std::uint64_t last = operation.blocks.end - 1;
    if (operation.edge_count == 0 || last != operation.blocks.first) add(last);
}

bool FileChannel::find_memory(Operation& operation) {
    const Copy& copy = *operation.copy;
    const bool zeroes = copy.kind == Copy::Kind::zero;
    const bool whole = copy.address % block_bytes == 0 && copy.length % block_bytes == 0;
    operation.bounce_bytes = 0;
    operation.memory = copy.staging;
    if (zeroes) {
        operation.bounce_bytes = operation.edge_count * block_bytes;
    } else if (!whole || !memory_.contains(copy.staging, copy.length) ||
               reinterpret_cast<std::uintptr_t>(copy.staging) % block_bytes != 0) {
        operation.bounce_bytes = operation.blocks.count() * block_bytes;
    }
    if (operation.bounce_bytes != 0) {
        operation.bounce_held = 0;  // all copies have an equal claim
        operation.memory = bounce_.take(operation.bounce_bytes, operation.bounce_held);
        if (operation.memory == nullptr) return false;
    }
    for (std::uint32_t i = 0; i != operation.edge_count; ++i) {
        Edge& edge = operation.edges[i];
        const std::uint64_t place = zeroes ? i : edge.block - operation.blocks.first;
        edge.memory = operation.memory + place * block_bytes;
    }
    return true;
}

void FileChannel::start(Operation& operation) {
    GPUNBD_ASSERT(operation.lock.granted(), "a copy touches its blocks after it has their lock");
    if (operation.copy->kind == Copy::Kind::read) {
        start_read(operation);
    } else if (state_.failed.load(std::memory_order_acquire)) {
        operation.error = EIO;
        end(operation);
    } else {
        fetch_edges(operation);
    }
}

void FileChannel::start_read(Operation& operation) {
    BlockRange written = operation.blocks;
    while (written.first != written.end && !state_.written.test(written.first)) ++written.first;
    while (written.first != written.end && !state_.written.test(written.end - 1)) --written.end;
    if (written.first == written.end) {
        spend(operation.copy->length);
        std::memset(operation.copy->staging, 0, operation.copy->length);
        end(operation);
        return;
    }
    const std::uint64_t before = written.first - operation.blocks.first;
    add_io(operation, false, operation.memory + before * block_bytes, written);
}

void FileChannel::fetch_edges(Operation& operation) {
    for (std::uint32_t i = 0; i != operation.edge_count; ++i) {
        Edge& edge = operation.edges[i];
        edge.fetched = state_.written.test(edge.block);
        if (edge.fetched) {
            add_io(operation, false, edge.memory, {edge.block, edge.block + 1});
        } else {
            std::memset(edge.memory, 0, block_bytes);
        }
    }
    if (operation.in_flight == 0) store(operation);
}

void FileChannel::store(Operation& operation) {
    GPUNBD_ASSERT(!operation.storing, "the blocks of a copy are stored once");
    operation.storing = true;
    for (std::uint32_t i = 0; i != operation.edge_count; ++i) {
        const Edge& edge = operation.edges[i];
        if (edge.fetched) decrypt(operation, edge.memory, {edge.block, edge.block + 1});
    }
    const Copy& copy = *operation.copy;
    if (copy.kind == Copy::Kind::zero) {
        store_zeroes(operation);
    } else {
        if (operation.bounce_bytes != 0) {
            spend(copy.length);
            std::memcpy(operation.memory + copy.address % block_bytes, copy.staging, copy.length);
        }
        // In place: nothing reads the staging memory of a write again.
        encrypt(operation, operation.memory, operation.blocks);
        if (operation.error == 0) add_io(operation, true, operation.memory, operation.blocks);
    }
    if (operation.in_flight == 0) end(operation);
}

// Whole blocks, and those that read as zeroes already, need no I/O.
void FileChannel::store_zeroes(Operation& operation) {
    const std::uint64_t first = operation.copy->address;
    const std::uint64_t last = first + operation.copy->length;
    for (std::uint32_t i = 0; i != operation.edge_count; ++i) {
        const Edge& edge = operation.edges[i];
        if (!edge.fetched) continue;
        const std::uint64_t start = edge.block * block_bytes;
        const std::uint64_t from = std::max(first, start) - start;
        const std::uint64_t to = std::min(last, start + block_bytes) - start;
        std::memset(edge.memory + from, 0, to - from);
        encrypt(operation, edge.memory, {edge.block, edge.block + 1});
    }
    if (operation.error != 0) return;
    for (std::uint32_t i = 0; i != operation.edge_count; ++i) {
        const Edge& edge = operation.edges[i];
        if (edge.fetched) add_io(operation, true, edge.memory, {edge.block, edge.block + 1});
    }
}

void FileChannel::io_ended(OperationIo& io) {
    Operation& operation = *io.operation;
    GPUNBD_ASSERT(operation.in_flight != 0 && operation.copy != nullptr,
                  "an operation lasts until its last read or write has ended");
    if (io.error != 0) {
        operation.error = io.error;
        state_.report(io);
    }
    if (--operation.in_flight != 0) return;
    if (operation.error == 0 && operation.copy->kind == Copy::Kind::read) {
        finish_read(operation);
    } else if (operation.error == 0 && !operation.storing) {
        store(operation);
        return;
    }
    end(operation);
}

void FileChannel::finish_read(Operation& operation) {
    const Copy& copy = *operation.copy;
    // The first and the last block that were read are known to be written.
    const OperationIo& io = operation.ios[0];
    decrypt(operation, io.memory, BlockRange::around(io.offset, io.bytes));
    for (std::uint64_t block = operation.blocks.first; block != operation.blocks.end; ++block) {
        if (state_.written.test(block)) continue;
        std::memset(operation.memory + (block - operation.blocks.first) * block_bytes, 0,
                    block_bytes);
    }
    if (operation.bounce_bytes == 0) return;
    spend(copy.length);
    std::memcpy(copy.staging, operation.memory + copy.address % block_bytes, copy.length);
}

void FileChannel::end(Operation& operation) {
    GPUNBD_ASSERT(operation.in_flight == 0,
                  "blocks stay locked until their last read or write has ended");
    Copy& copy = *operation.copy;
    if (operation.error == 0 && copy.kind == Copy::Kind::write) {
        state_.written.set(operation.blocks);
    } else if (operation.error == 0 && copy.kind == Copy::Kind::zero) {
        state_.written.reset(BlockRange::within(copy.address, copy.length));
    }
    state_.locks.release(operation.lock);
    if (operation.bounce_bytes != 0) {
        bounce_.give_back(operation.memory, operation.bounce_bytes, operation.bounce_held);
    }
    operation.copy = nullptr;
    const Status status = operation.error == 0 ? Status::ok : Status::io_error;
    free_.push(operation);
    finish(copy, status);
}

void FileChannel::add_io(Operation& operation, bool write, std::byte* memory, BlockRange blocks) {
    GPUNBD_ASSERT(operation.in_flight != operation.ios.size(),
                  "an operation reads or writes at most two ranges at a time");
    GPUNBD_ASSERT(operation.blocks.first <= blocks.first && blocks.end <= operation.blocks.end,
                  "an operation reads and writes the blocks that it has locked");
    OperationIo& io = operation.ios[operation.in_flight++];
    io.write = write;
    io.memory = memory;
    io.bytes = static_cast<std::uint32_t>(blocks.count() * block_bytes);
    io.offset = blocks.first * block_bytes;
    io.done = 0;
    io.error = 0;
    io.operation = &operation;
    queue_->add(io);
}

void FileChannel::encrypt(Operation& operation, std::byte* memory, BlockRange blocks) {
    if (!cipher_) return;
    spend(blocks.count() * block_bytes);
    if (!cipher_->encrypt(memory, blocks)) operation.error = EIO;
}

void FileChannel::decrypt(Operation& operation, std::byte* memory, BlockRange blocks) {
    if (!cipher_) return;
    spend(blocks.count() * block_bytes);
    if (!cipher_->decrypt(memory, blocks)) operation.error = EIO;
}

}  // namespace gpunbd::storage
