#include "storage/migration/page_mover.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::microseconds poll_interval{20};  // while copies are in flight

}  // namespace

PageMover::Result PageMover::move(Volume& volume, PagePool& from,
                                  std::span<PagePool* const> targets,
                                  std::span<const std::uint64_t> numbers) {
    Result result;
    std::size_t next = 0;
    while (true) {
        bool any = false;
        for (Move& move : moves_) {
            while (move.idle() && next != numbers.size()) {
                if (move.begin(volume, from, targets, numbers[next++], result)) break;
            }
            if (move.idle()) continue;
            move.advance(channels_, result);
            any = true;
        }
        if (!any) return result;
        channels_.poll();
        // Copies take longer than this. A thread that only polled would take a CPU from clients.
        if (channels_.busy()) std::this_thread::sleep_for(poll_interval);
    }
}

bool PageMover::Move::begin(Volume& volume, PagePool& from, std::span<PagePool* const> targets,
                            std::uint64_t number, Result& result) {
    volume_ = &volume;
    from_ = &from;
    slot_ = volume.slot(number);
    // The target is allocated first, because that may block, and clients wait during the move.
    const auto target = std::ranges::find_if(targets, [&](PagePool* pool) {
        return !pool->device().failed() && pool->take_unclear(target_) == Status::ok;
    });
    if (target == targets.end()) {
        result.is_full = true;
        return false;
    }
    to_ = *target;
    if (!from.begin_move(slot_, source_)) {
        to_->put_back(target_);
        return false;
    }
    at_ = 0;
    state_ = State::next_chunk;
    return true;
}

void PageMover::Move::advance(Channels& channels, Result& result) {
    while (true) {
        switch (state_) {
            case State::idle:
            case State::reading:
            case State::writing:
                return;
            case State::next_chunk:
                if (!start_read(channels)) return;
                break;
            case State::read:
                if (!start_write(channels)) return;
                break;
            case State::written:
                end_chunk(channels);
                if (at_ == volume_->page_size()) commit(result);
                break;
            case State::failed:
                fail(channels, result);
                break;
        }
    }
}

bool PageMover::Move::start_read(Channels& channels) {
    Channel& from = channels.to(source_.device());
    length_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>({volume_->page_size() - at_, from.options().chunk_size,
                                 channels.to(to_->device()).options().chunk_size}));
    if (from.sends_from(source_.slab(), length_)) {
        data_ = source_.cpu() + at_;
        state_ = State::read;
        return true;
    }
    read_staging_ = from.read_staging().take(length_, read_held_);
    if (read_staging_ == nullptr) return false;
    data_ = read_staging_;
    state_ = State::reading;
    std::byte* const cpu = source_.cpu();
    copy_.prepare(Copy::Kind::read, length_, source_.address() + at_,
                  cpu == nullptr ? nullptr : cpu + at_, read_staging_, *this);
    from.enqueue(copy_);
    return true;
}

bool PageMover::Move::start_write(Channels& channels) {
    Channel& to = channels.to(to_->device());
    const PoolSlabs& slabs = to_->slabs();
    if (to.receives_into(slabs.slab_of(target_), length_)) {
        store_streaming(slabs.cpu_of(target_) + at_, data_, length_);
        state_ = State::written;
        return true;
    }
    write_staging_ = to.write_staging().take(length_, write_held_);
    if (write_staging_ == nullptr) return false;
    std::memcpy(write_staging_, data_, length_);
    state_ = State::writing;
    copy_.prepare(Copy::Kind::write, length_, slabs.address_of(target_) + at_, nullptr,
                  write_staging_, *this);
    to.enqueue(copy_);
    return true;
}

void PageMover::Move::copy_done(Copy& copy) {
    if (copy.status != Status::ok) {
        state_ = State::failed;
    } else {
        state_ = state_ == State::reading ? State::read : State::written;
    }
}

void PageMover::Move::end_chunk(Channels& channels) {
    release_staging(channels);
    at_ += length_;
    state_ = State::next_chunk;
}

void PageMover::Move::release_staging(Channels& channels) {
    if (read_staging_ != nullptr) {
        channels.to(source_.device())
            .read_staging()
            .give_back(std::exchange(read_staging_, nullptr), length_, read_held_);
    }
    if (write_staging_ != nullptr) {
        channels.to(to_->device())
            .write_staging()
            .give_back(std::exchange(write_staging_, nullptr), length_, write_held_);
    }
}

void PageMover::Move::commit(Result& result) {
    store_fence();  // clients may read the new page at once
    if (from_->commit_move(slot_, *to_, target_)) {
        ++result.moved[to_];
    } else {
        to_->put_back(target_);
    }
    source_.reset();
    state_ = State::idle;
}

void PageMover::Move::fail(Channels& channels, Result& result) {
    release_staging(channels);
    from_->cancel_move(slot_);
    to_->put_back(target_);
    source_.reset();
    ++result.failed;
    state_ = State::idle;
}

}  // namespace gpunbd::storage
