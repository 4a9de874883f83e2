// Keys out of the bytes that a terminal sends for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::status {

enum class Key { quit, sort, only_one, explain, up, down, page_up, page_down };

class KeyReader {
 public:
    // Those that are whole; others than the above are passed over.
    std::vector<Key> take(std::string_view bytes);

 private:
    std::string pending_;  // the beginning of a sequence
};

}  // namespace gpunbd::status
