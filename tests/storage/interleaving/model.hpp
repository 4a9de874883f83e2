// What volumes contain, as a sequence of operations on registers: each page has two words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>

namespace gpunbd::interleaving {

constexpr unsigned max_volumes = 5;
constexpr unsigned volume_pages = 2;
constexpr unsigned page_words = 2;

// By volume, page and word.
using Contents =
    std::array<std::array<std::array<std::uint8_t, page_words>, volume_pages>, max_volumes>;

struct Operation {
    enum class Kind : std::uint8_t { read, write, zero, clone };
    Kind kind = Kind::read;
    unsigned volume = 0;
    unsigned page = 0;
    unsigned word = 0;       // of a read or a write
    std::uint8_t value = 0;  // read or written; of a clone: the other volume
    unsigned begin = 0;      // in the order of all beginnings and ends
    unsigned end = ~0U;
};

class History {
 public:
    void clear() { count_ = clock_ = 0; }
    // Returns the number of the operation.
    unsigned begin(Operation operation);
    void end(unsigned number, std::uint8_t value);
    // Whether some order of the operations, in which none comes before one that ended before it
    // began, has the results that they had and leads to `last` in the volumes that are `left`.
    bool is_explained(const Contents& first, const Contents& last, std::uint32_t left);
    std::string text() const;

 private:
    bool explain(Contents now, std::uint32_t done) const;

    static constexpr unsigned most = 16;
    std::array<Operation, most> all_;
    unsigned count_ = 0;
    unsigned clock_ = 0;
    Contents last_{};
    std::uint32_t left_ = 0;
    std::unordered_set<std::string> explained_;  // of all schedules
};

}  // namespace gpunbd::interleaving
