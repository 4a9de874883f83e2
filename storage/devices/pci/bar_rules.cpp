#include "storage/devices/pci/bar_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t place_bytes = 64;   // a cache line
constexpr std::uint64_t page_bytes = 4096;  // the smallest step
// Each read is a bus round trip: a tenth of a second in total.
constexpr std::uint64_t max_steps = 65536;

using Words = std::array<std::uint64_t, place_bytes / sizeof(std::uint64_t)>;

std::vector<std::uint64_t> places_in(std::uint64_t bytes) {
    const std::uint64_t step =
        std::max(page_bytes, std::bit_ceil((bytes + max_steps - 1) / max_steps));
    std::vector<std::uint64_t> places;
    for (std::uint64_t at = 0; at < bytes; at += step) places.push_back(at);
    for (std::uint64_t at = place_bytes; at < std::min(step, bytes); at *= 2) places.push_back(at);
    places.push_back(bytes - place_bytes);
    std::sort(places.begin(), places.end());
    return places;
}

// `mask` selects the numbers or their complements.
Words numbers_of(std::uint64_t place, std::uint64_t mask) {
    Words words;
    for (std::size_t i = 0; i != words.size(); ++i) words[i] = (place + 8 * i) ^ mask;
    return words;
}

struct Mismatch {
    std::uint64_t place;
    std::uint64_t found;  // the number that was read
};

Words words_at(const std::byte* place) {
    Words words;
    load_streaming(reinterpret_cast<std::byte*>(words.data()), place, place_bytes);
    return words;
}

std::optional<Mismatch> write_and_read(std::byte* at, const std::vector<std::uint64_t>& places,
                                       std::uint64_t mask, const std::function<void()>& settle) {
    for (const std::uint64_t place : places) {
        const Words words = numbers_of(place, mask);
        store_streaming(at + place, reinterpret_cast<const std::byte*>(words.data()), place_bytes);
    }
    settle();
    drop_loaded_lines();
    for (const std::uint64_t place : places) {
        const Words seen = words_at(at + place);
        if (seen != numbers_of(place, mask)) return Mismatch{place, seen[0] ^ mask};
    }
    return std::nullopt;
}

std::string describe_mismatch(const std::byte* at, const std::vector<std::uint64_t>& places,
                              const Mismatch& wrong) {
    const bool answers_again = wrong.place == 0 && wrong.found != 0 &&
                               std::binary_search(places.begin(), places.end(), wrong.found);
    if (!answers_again) {
        return fmt::format("it is not memory: byte {} does not keep the written value",
                           wrong.place);
    }
    const Words first = words_at(at);
    const auto repeat = std::find_if(places.begin() + 1, places.end(), [&](std::uint64_t place) {
        return words_at(at + place) == first;
    });
    return fmt::format(
        "it has only {} of memory, which repeats; set its "
        "capacity to that size",
        bar_size(repeat == places.end() ? wrong.found : *repeat));
}

std::string memory_of(const PciCard& card) {
    std::string list;
    for (std::uint32_t i = 0; i != card.bars.size(); ++i) {
        const Bar& bar = card.bars[i];
        if (!bar.memory || bar.bytes < smallest_bar) continue;
        list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", i, bar_size(bar.bytes));
    }
    return list.empty() ? "none of its BARs is memory of 64 KiB or more"
                        : fmt::format("its memory BARs: {}", list);
}

std::string remedy_for_use(const PciCard& card) {
    if (card.driver.empty()) return "choose another card, or force it (force: true, --force-pci)";
    return fmt::format(
        "unbind the driver (echo {} > {}/driver/unbind) or, if the driver does not use "
        "this BAR, force it (force: true, --force-pci)",
        card.address, card.folder);
}

}  // namespace

std::string reason_not_memory(std::byte* at, std::uint64_t bytes,
                              const std::function<void()>& settle) {
    const std::vector<std::uint64_t> places = places_in(bytes);
    for (const std::uint64_t mask : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        const auto wrong = write_and_read(at, places, mask, settle);
        if (wrong) return describe_mismatch(at, places, *wrong);
    }
    return {};
}

std::string bar_size(std::uint64_t bytes) {
    constexpr std::uint64_t unit = 1024;
    if (bytes < unit) return fmt::format("{} bytes", bytes);
    if (bytes < unit * unit) return fmt::format("{} KiB", bytes / unit);
    if (bytes < unit * unit * unit) return fmt::format("{} MiB", bytes / unit / unit);
    return fmt::format("{} GiB", bytes / unit / unit / unit);
}

std::string user_of(const PciCard& card) {
    if (!card.driver.empty()) {
        return fmt::format("the driver {} uses the {}", card.driver,
                           card.display ? "card, a display" : "card");
    }
    return card.display ? "the card is a display, whose screen contents may be in this memory" : "";
}

std::string reason_not_served(const PciCard& card, std::uint32_t number, bool force) {
    const Bar& bar = card.bars.at(number);
    if (bar.bytes == 0) {
        return fmt::format("the card {} has no BAR {}; {}", card.name, number, memory_of(card));
    }
    if (!bar.memory) {
        return fmt::format("BAR {} is I/O ports, not memory; {}", number, memory_of(card));
    }
    if (!bar.has_address) {
        return fmt::format(
            "the firmware has assigned no addresses to its {}; enable addresses above 4 GiB in the "
            "firmware",
            bar_size(bar.bytes));
    }
    if (bar.bytes < smallest_bar) {
        return fmt::format("{} are too small; {}", bar_size(bar.bytes), memory_of(card));
    }
    const std::string user = user_of(card);
    if (user.empty() || force) return {};
    return fmt::format("{}; {}", user, remedy_for_use(card));
}

}  // namespace gpunbd::storage
