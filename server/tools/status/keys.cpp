#include "server/tools/status/keys.hpp"

#include <array>
#include <optional>
#include <utility>

namespace gpunbd::status {
namespace {

using Meaning = std::pair<std::string_view, Key>;

constexpr std::array<Meaning, 6> letter_keys{{{"q", Key::quit},
                                              {"s", Key::sort},
                                              {"e", Key::only_one},
                                              {"?", Key::explain},
                                              {"k", Key::up},
                                              {"j", Key::down}}};
// VT220 sequences; the second form of the arrows is that of the "application mode".
constexpr std::array<Meaning, 6> sequences{{{"\x1b[A", Key::up},
                                            {"\x1bOA", Key::up},
                                            {"\x1b[B", Key::down},
                                            {"\x1bOB", Key::down},
                                            {"\x1b[5~", Key::page_up},
                                            {"\x1b[6~", Key::page_down}}};

template <std::size_t n>
std::optional<Key> meaning(const std::array<Meaning, n>& known, std::string_view typed) {
    for (const auto& [text, key] : known) {
        if (text == typed) return key;
    }
    return std::nullopt;
}

bool ends_sequence(std::string_view typed) {
    if (typed.size() < 2) return false;
    if (typed.size() == 2) return typed[1] != '[' && typed[1] != 'O';
    return typed.back() >= '@' && typed.back() <= '~';
}

}  // namespace

std::vector<Key> KeyReader::take(std::string_view bytes) {
    constexpr std::size_t longest = 16;
    std::vector<Key> out;
    for (const char byte : bytes) {
        const bool begins = byte == '\x1b';
        if (begins || !pending_.empty()) {
            if (begins) pending_.clear();
            pending_ += byte;
            if (const auto key = meaning(sequences, pending_)) out.push_back(*key);
            if (ends_sequence(pending_) || pending_.size() > longest) pending_.clear();
        } else if (const auto key = meaning(letter_keys, {&byte, 1})) {
            out.push_back(*key);
        }
    }
    return out;
}

}  // namespace gpunbd::status
