// Decodes keys from the bytes of a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::status {

enum class Key { quit, sort, only_one, explain, up, down, page_up, page_down };

class KeyReader {
 public:
    // Returns the keys of complete sequences; ignores unknown ones.
    std::vector<Key> take(std::string_view bytes);

 private:
    std::string pending_;  // the start of an incomplete sequence
};

}  // namespace gpunbd::status
