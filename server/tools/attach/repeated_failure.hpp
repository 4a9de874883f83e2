// A failure that may repeat each second and should be logged once.
#pragma once

#include <string>

namespace gpunbd::attach {

class RepeatedFailure {
 public:
    // False if the last call had the same text, apart from numbers.
    bool is_new(std::string text) {
        std::erase_if(text, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
        if (text == last_) return false;
        last_ = std::move(text);
        return true;
    }

 private:
    std::string last_;
};

}  // namespace gpunbd::attach
