#include "storage/migration/page_mover.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/control_groups.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::microseconds poll_interval{20};  // while copies are in flight

bool is_zero(const std::byte* data, std::size_t length) {
    return data[0] == std::byte{} && std::memcmp(data, data + 1, length - 1) == 0;
}

}  // namespace

void PageMover::move(MoveQueue& queue) noexcept {
    while (true) {
        bool any = false;
        bool advanced = false;
        for (Move& move : moves_) {
            while (move.idle()) {
                PageToMove* const page = queue.next();
                if (page == nullptr || move.begin(*page)) break;
                if (page->outcome == PageToMove::Outcome::no_room) queue.set_full(page->from);
            }
            if (move.idle()) continue;
            any = true;
            if (!move.advance(channels_)) continue;
            advanced = true;
            channels_.poll();  // the device copies while the CPU works on the next page
        }
        if (!any) return;
        if (advanced) continue;
        channels_.poll();
        // Copies take longer than this. A thread that only polled would take a CPU from clients.
        if (channels_.busy()) std::this_thread::sleep_for(poll_interval);
    }
}

bool PageMover::Move::begin(PageToMove& page) {
    GPUNBD_ASSERT(idle() && source_.hole(), "a move ends before the next one begins");
    GPUNBD_ASSERT(page.outcome == PageToMove::Outcome::stayed, "a page is in the list once");
    page_ = &page;
    const std::span<PagePool* const> targets =
        page.to != nullptr ? std::span<PagePool* const>(&page.to, 1) : page.from->spills();
    // The target is allocated first, because that may block, and clients wait during the move.
    const auto target = std::ranges::find_if(targets, [&](PagePool* pool) {
        return !pool->device().failed() &&
               pool->memory().take_target(target_, page.kind) == Status::ok;
    });
    if (target == targets.end()) {
        page.outcome = PageToMove::Outcome::no_room;
        return false;
    }
    to_ = *target;
    if (!page.from->begin_move(page.number, page.volume->slot(page.number), source_)) {
        to_->memory().put_back(target_, PageAllocator::Purpose::fill);
        page.outcome = PageToMove::Outcome::stayed;
        return false;
    }
    at_ = 0;
    state_ = State::next_chunk;
    return true;
}

bool PageMover::Move::advance(Channels& channels) {
    for (bool advanced = false;; advanced = true) {
        switch (state_) {
            case State::idle:
            case State::reading:
            case State::writing:
                return advanced;
            case State::next_chunk:
                if (!start_read(channels)) return advanced;
                break;
            case State::read:
                if (!start_write(channels)) return advanced;
                break;
            case State::written:
                end_chunk(channels);
                if (at_ == page_->volume->page_size()) commit();
                break;
            case State::failed:
                fail(channels);
                break;
        }
    }
}

bool PageMover::Move::start_read(Channels& channels) {
    GPUNBD_ASSERT(at_ < page_->volume->page_size(), "a page that has a next chunk is not complete");
    Channel* const source = channels.find(source_.device());
    const Channel* const target = channels.find(to_->device());
    if (source == nullptr || target == nullptr) {
        state_ = State::failed;
        return true;
    }
    Channel& from = *source;
    length_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>({page_->volume->page_size() - at_, from.options().chunk_size,
                                 target->options().chunk_size}));
    if (source_.device().sends_in_place()) {
        data_ = source_.cpu() + at_;
        state_ = State::read;
        return true;
    }
    GPUNBD_ASSERT(read_staging_ == nullptr, "a chunk returns its memory before the next one");
    read_staging_ = from.read_staging().take(length_, read_held_);
    if (read_staging_ == nullptr) return false;
    data_ = read_staging_;
    state_ = State::reading;
    std::byte* const cpu = source_.cpu();
    copy_.prepare(Copy::Kind::read, length_, source_.address() + at_,
                  cpu == nullptr ? nullptr : cpu + at_, read_staging_, *this,
                  source_.slab().revocable);
    from.enqueue(copy_);
    return true;
}

bool PageMover::Move::start_write(Channels& channels) {
    Channel& to = channels.to(to_->device());
    const PoolSlabs& slabs = to_->memory().slabs();
    if (to.receives_into(slabs.slab_of(target_), length_)) {
        store_streaming(slabs.cpu_of(target_) + at_, data_, length_);
        state_ = State::written;
        return true;
    }
    auto kind = Copy::Kind::zero;  // costs no transfer
    if (!is_zero(data_, length_)) {
        kind = Copy::Kind::write;
        GPUNBD_ASSERT(write_staging_ == nullptr, "a chunk returns its memory before the next one");
        write_staging_ = to.write_staging().take(length_, write_held_);
        if (write_staging_ == nullptr) return false;
        std::memcpy(write_staging_, data_, length_);
    }
    state_ = State::writing;
    copy_.prepare(kind, length_, slabs.address_of(target_) + at_, nullptr, write_staging_, *this,
                  slabs.slab_of(target_).revocable);
    to.enqueue(copy_);
    return true;
}

void PageMover::Move::copy_done(Copy& copy) {
    GPUNBD_ASSERT(state_ == State::reading || state_ == State::writing,
                  "a move waits for the end of its copy");
    if (copy.status != Status::ok) {
        state_ = State::failed;
    } else {
        state_ = state_ == State::reading ? State::read : State::written;
    }
}

void PageMover::Move::end_chunk(Channels& channels) {
    release_staging(channels);
    at_ += length_;
    GPUNBD_ASSERT(at_ <= page_->volume->page_size(), "a move copies its page only");
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

void PageMover::Move::commit() {
    GPUNBD_ASSERT(at_ == page_->volume->page_size(), "the whole page is copied before it moves");
    store_fence();  // clients may read the new page at once
    if (page_->from->commit_move(page_->number, source_.index(), *to_, target_)) {
        page_->to = to_;
        end(PageToMove::Outcome::moved);
    } else {
        to_->memory().put_back(target_, PageAllocator::Purpose::fill);
        end(PageToMove::Outcome::stayed);
    }
}

void PageMover::Move::fail(Channels& channels) {
    release_staging(channels);
    page_->from->cancel_move(page_->number, source_.index());
    to_->memory().put_back(target_, PageAllocator::Purpose::fill);
    end(PageToMove::Outcome::failed);
}

void PageMover::Move::end(PageToMove::Outcome outcome) {
    GPUNBD_ASSERT(read_staging_ == nullptr && write_staging_ == nullptr && read_held_ == 0 &&
                      write_held_ == 0,
                  "a move that ends has returned its staging memory");
    source_.reset();
    page_->outcome = outcome;
    state_ = State::idle;
}

unsigned MoverPool::default_threads() { return std::clamp(usable_cpus() / 2, 1U, 8U); }

MoverPool::MoverPool(const ChannelOptions& options, unsigned threads)
    : options_([&] {
          ChannelOptions share = options;
          share.pinned = std::min(options.pinned,
                                  std::max(std::bit_floor(options.pinned / threads), least_pinned));
          return share;
      }()),
      wanted_(threads - 1),
      mover_(options_) {}

MoverPool::~MoverPool() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    begun_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

unsigned MoverPool::threads() const {
    const Lock lock(mutex_);
    return living_ + 1;
}

void MoverPool::open(std::span<Device* const> devices) {
    std::vector<Device*> closed;
    for (Device* const device : devices) {
        if (std::ranges::find(opened_, device) == opened_.end()) closed.push_back(device);
    }
    if (closed.empty()) return;
    opened_.reserve(opened_.size() + closed.size());
    for (Device* const device : closed) mover_.open(*device);
    start_threads();
    begin_round({.to_open = closed});
    end_round();
    opened_.insert(opened_.end(), closed.begin(), closed.end());
}

void MoverPool::move(std::span<PageToMove> pages) {
    MoveQueue queue(pages);
    const bool is_shared = pages.size() > 1;
    if (is_shared) begin_round({.queue = &queue});
    mover_.move(queue);
    if (is_shared) end_round();
}

void MoverPool::start_threads() {
    if (std::exchange(started_, true)) return;
    try {
        threads_.reserve(wanted_);
        while (threads_.size() != wanted_) {
            threads_.emplace_back([this] { run(); });
            ::pthread_setname_np(threads_.back().native_handle(), "page mover");
            const Lock lock(mutex_);
            ++living_;
        }
    } catch (const std::exception&) {  // fewer threads work too
    }
}

void MoverPool::run() {
    PageMover mover(options_);
    std::uint64_t seen = 0;  // threads are started before the first round
    bool works = true;
    const Lock lock(mutex_);
    while (works) {
        while (!stopping_ && round_ == seen) begun_.wait(mutex_);
        if (stopping_) return;
        seen = round_;
        const Work work = work_;
        {
            const Unlock unlock(mutex_);
            works = perform(mover, work);
        }
        GPUNBD_ASSERT(living_ != 0 && working_ != 0, "each living thread works on each round");
        if (!works) --living_;
        if (--working_ == 0) ended_.notify_one();
    }
}

// False: a channel cannot be opened.
bool MoverPool::perform(PageMover& mover, const Work& work) {
    if (work.queue != nullptr) mover.move(*work.queue);
    try {
        for (Device* const device : work.to_open) {
            const Lock lock(opening_);
            mover.open(*device);
        }
    } catch (const std::exception&) {
        return false;
    }
    return true;
}

void MoverPool::begin_round(const Work& work) {
    {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(working_ == 0, "a round ends before the next one begins");
        work_ = work;
        working_ = living_;
        ++round_;
    }
    begun_.notify_all();
}

void MoverPool::end_round() {
    const Lock lock(mutex_);
    while (working_ != 0) ended_.wait(mutex_);
}

}  // namespace gpunbd::storage
