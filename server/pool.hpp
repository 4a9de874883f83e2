// Objects that are used again and again by one worker: nothing is allocated once it is warm.
#pragma once

#include <memory>
#include <vector>

namespace gpunbd::server {

template <typename T>
class Pool {
 public:
    T& take() {
        if (free_.empty()) {
            all_.push_back(std::make_unique<T>());
            free_.reserve(all_.capacity());
            return *all_.back();
        }
        T& object = *free_.back();
        free_.pop_back();
        return object;
    }
    void give_back(T& object) { free_.push_back(&object); }

 private:
    std::vector<std::unique_ptr<T>> all_;
    std::vector<T*> free_;
};

}  // namespace gpunbd::server
