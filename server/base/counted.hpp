// Counts its own existence, such as that of a coroutine.
#pragma once

#include <cstddef>

namespace gpunbd::server {

class Counted {
 public:
    // `count` outlives this object.
    explicit Counted(std::size_t& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

 private:
    std::size_t& count_;
};

}  // namespace gpunbd::server
