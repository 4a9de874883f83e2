// Recycles objects of one worker, so that nothing is allocated once it is warm. Objects beyond
// max_free are freed.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

template <typename T>
class Pool {
 public:
    // `max_free`: the number of unused objects to keep.
    explicit Pool(std::size_t max_free) : max_free_(max_free) {}
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    T& take() {
        if (free_.empty()) {
            // So that give_back() cannot fail.
            if (free_.capacity() < max_free_) free_.reserve(max_free_);
            all_.push_back(std::make_unique<Slot>());
            all_.back()->index = all_.size() - 1;
            return *all_.back();
        }
        Slot& slot = *free_.back();
        free_.pop_back();
        return slot;
    }

    void give_back(T& object) noexcept {
        Slot& slot = static_cast<Slot&>(object);
        GPUNBD_ASSERT(slot.index < all_.size() && all_[slot.index].get() == &slot,
                      "a pool gets its own objects back");
        GPUNBD_ASSERT(free_.size() < all_.size(), "an object is given back once");
        if (free_.size() < max_free_) {
            free_.push_back(&slot);
            return;
        }
        const std::size_t index = slot.index;
        std::swap(all_[index], all_.back());
        all_[index]->index = index;
        all_.pop_back();
    }

    std::size_t size() const { return all_.size(); }  // in use and unused

 private:
    struct Slot : T {
        std::size_t index = 0;
    };

    const std::size_t max_free_;
    std::vector<std::unique_ptr<Slot>> all_;
    std::vector<Slot*> free_;
};

}  // namespace gpunbd::server
