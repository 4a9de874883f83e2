#include "tests/storage/interleaving/model.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace gpunbd::interleaving {

unsigned History::begin(Operation operation) {
    if (count_ == most) std::abort();
    operation.begin = ++clock_;
    operation.end = ~0U;
    all_[count_] = operation;
    return count_++;
}

void History::end(unsigned number, std::uint8_t value) {
    all_[number].value = value;
    all_[number].end = ++clock_;
}

bool History::is_explained(const Contents& first, const Contents& last, std::uint32_t left) {
    std::string key(reinterpret_cast<const char*>(&first), sizeof first);
    key.append(reinterpret_cast<const char*>(&last), sizeof last);
    key.push_back(static_cast<char>(left));
    for (unsigned i = 0; i != count_; ++i) {
        const Operation& each = all_[i];
        for (const unsigned field : {static_cast<unsigned>(each.kind), each.volume, each.page,
                                     each.word, unsigned{each.value}, each.begin, each.end}) {
            key.push_back(static_cast<char>(field));
        }
    }
    if (explained_.contains(key)) return true;
    last_ = last;
    left_ = left;
    if (!explain(first, 0)) return false;
    explained_.insert(std::move(key));
    return true;
}

bool History::explain(Contents now, std::uint32_t done) const {
    if (done == (1U << count_) - 1) {
        for (unsigned volume = 0; volume != max_volumes; ++volume) {
            if ((left_ >> volume & 1) != 0 && now[volume] != last_[volume]) return false;
        }
        return true;
    }
    unsigned first_end = ~0U;
    for (unsigned i = 0; i != count_; ++i) {
        if ((done >> i & 1) == 0) first_end = std::min(first_end, all_[i].end);
    }
    for (unsigned i = 0; i != count_; ++i) {
        const Operation& each = all_[i];
        if ((done >> i & 1) != 0 || each.begin > first_end) continue;
        Contents next = now;
        auto& page = next[each.volume][each.page];
        switch (each.kind) {
            case Operation::Kind::read:
                if (page[each.word] != each.value) continue;
                break;
            case Operation::Kind::write:
                page[each.word] = each.value;
                break;
            case Operation::Kind::zero:
                page.fill(0);
                break;
            case Operation::Kind::clone:
                next[each.value] = next[each.volume];
                break;
        }
        if (explain(next, done | 1U << i)) return true;
    }
    return false;
}

std::string History::text() const {
    constexpr std::array names = {"read", "write", "zero", "clone"};
    std::string out;
    for (unsigned i = 0; i != count_; ++i) {
        const Operation& each = all_[i];
        out += fmt::format("  [{:2} {:2}] {} volume {} page {} word {}: {}\n", each.begin, each.end,
                           names[static_cast<std::size_t>(each.kind)], each.volume, each.page,
                           each.word, each.value);
    }
    return out;
}

}  // namespace gpunbd::interleaving
