// Requests and unmaps pages of a volume as a worker does, and can wait for the completion.
#pragma once

#include <thread>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage::test {

class TestWaiter final : private PageWaiter {
 public:
    TestWaiter() { request_.waiter = this; }
    // Like Volume::acquire.
    std::optional<Status> try_acquire(Volume& volume, std::uint64_t page, PageRef& out) {
        return volume.acquire(page, out, request_, returns_);
    }
    void unmap(Volume& volume, std::uint64_t page) {
        while (!volume.unmap(page, request_, returns_)) answer();
    }
    bool in_progress() const { return request_.in_progress; }
    // Waits for the completion.
    Status answer() {
        while (!returns_.any()) std::this_thread::yield();
        returns_.deliver();
        return request_.status;
    }
    // Also completes what try_acquire() has begun.
    Status acquire(Volume& volume, std::uint64_t page, PageRef& out) {
        while (true) {
            if (!request_.in_progress) {
                if (const auto status = try_acquire(volume, page, out)) return *status;
            }
            if (const Status status = answer(); status != Status::ok) return status;
        }
    }

 private:
    void page_ready() override {}

    PageCompletions returns_{{}};
    PageRequest request_;
};

}  // namespace gpunbd::storage::test
