// Who asks a volume for pages as a worker does, and may wait for the answer.
#pragma once

#include <thread>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage::test {

class Asking final : private PageAsker {
 public:
    Asking() { request_.asker = this; }
    // As Volume::acquire.
    std::optional<Status> try_acquire(Volume& volume, std::uint64_t page, PageRef& out) {
        return volume.acquire(page, out, request_, returns_);
    }
    bool under_way() const { return request_.under_way; }
    // Waits for the answer.
    Status answer() {
        while (!returns_.any()) std::this_thread::yield();
        returns_.deliver();
        return request_.status;
    }
    // Also the rest of one that try_acquire() has begun.
    Status acquire(Volume& volume, std::uint64_t page, PageRef& out) {
        while (true) {
            if (!request_.under_way) {
                if (const auto status = try_acquire(volume, page, out)) return *status;
            }
            if (const Status status = answer(); status != Status::ok) return status;
        }
    }

 private:
    void page_answered() override {}

    PageReturns returns_{{}};
    PageRequest request_;
};

}  // namespace gpunbd::storage::test
