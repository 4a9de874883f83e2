#include "storage/migration/mover_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/control_groups.hpp"

namespace gpunbd::storage {

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
        for (Device* const device : work.to_open) mover.open(*device);
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
