#include "config/size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "config/quote.hpp"

namespace gpunbd::config {
namespace {

struct Unit {
    char letter;
    unsigned shift;
};
constexpr std::array<Unit, 4> units{{{'t', 40}, {'g', 30}, {'m', 20}, {'k', 10}}};
// 2^-40 has 40 decimal places, so a longer fraction never results in whole bytes.
constexpr std::size_t max_fraction_digits = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char upper(char c) { return static_cast<char>(c - 'a' + 'A'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The fraction ".digits" times 2^shift, if that is whole. Doubles the digits, to avoid rounding.
std::optional<std::uint64_t> scale_fraction(std::string_view digits, unsigned shift) {
    while (!digits.empty() && digits.back() == '0') digits.remove_suffix(1);
    if (digits.size() > max_fraction_digits) return std::nullopt;
    std::string fraction(digits);
    std::uint64_t whole = 0;
    for (unsigned bit = 0; bit < shift; ++bit) {
        int carry = 0;
        for (auto digit = fraction.rbegin(); digit != fraction.rend(); ++digit) {
            const int doubled = (*digit - '0') * 2 + carry;
            *digit = static_cast<char>('0' + doubled % 10);
            carry = doubled / 10;
        }
        whole = whole * 2 + static_cast<std::uint64_t>(carry);
    }
    if (fraction.find_first_not_of('0') != std::string::npos) return std::nullopt;
    return whole;
}

// Corrects a unit that is a word or follows a space, and a decimal comma: "10 gigs", "8 G", "1,5G".
// Returns an empty text if it cannot.
std::string meant_size(std::string_view number, std::string_view suffix) {
    std::string meant(number);
    if (suffix[0] == ',' && number.find('.') == std::string_view::npos) {
        const std::size_t end = std::min(suffix.find_first_not_of("0123456789", 1), suffix.size());
        if (end == 1 || end == 4) return {};  // 1,000 may mean one thousand
        meant += fmt::format(".{}", suffix.substr(1, end - 1));
        suffix.remove_prefix(end);
    }
    suffix.remove_prefix(std::min(suffix.find_first_not_of(' '), suffix.size()));
    const auto is_letter = [](char c) { return lower(c) >= 'a' && lower(c) <= 'z'; };
    if (suffix.empty() || !std::all_of(suffix.begin(), suffix.end(), is_letter)) return {};
    for (const Unit& unit : units) {
        if (lower(suffix[0]) == unit.letter) return meant + upper(unit.letter);
    }
    return {};
}

// Returns the power of two of a unit, or an error.
std::variant<unsigned, std::string> unit_shift(std::string_view text, std::string_view number,
                                               std::string_view suffix) {
    std::string unit;
    for (char c : suffix) unit += lower(c);
    if (unit.empty() || unit == "b") return 0U;
    for (const Unit& known : units) {
        if (unit[0] != known.letter) continue;
        if (unit.size() == 1 || unit.substr(1) == "ib" || unit.substr(1) == "i") {
            return known.shift;
        }
        if (unit.substr(1) == "b") {
            const char letter = upper(known.letter);
            return fmt::format("{} has a decimal unit, and sizes are binary; write {}{} or {}{}iB",
                               in_quotes(text), number, letter, number, letter);
        }
    }
    if (const std::string meant = meant_size(number, suffix); !meant.empty()) {
        return fmt::format("{} is not a size; write {}", in_quotes(text), meant);
    }
    return fmt::format(
        "{} is not a size: unknown unit {}; write a number with K, M, G or T, for example 8G",
        in_quotes(text), in_quotes(suffix));
}

std::variant<Size, std::string> parse_percent(std::string_view text) {
    const std::string_view digits = text.substr(0, text.size() - 1);
    std::uint32_t percent = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), percent);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (!whole || percent < 1 || percent > 100) {
        return fmt::format("{} is not a share; write a whole percentage from 1% to 100%",
                           in_quotes(text));
    }
    return Size{.percent = percent};
}

}  // namespace

std::variant<Size, std::string> parse_size(std::string_view text) {
    if (text.empty()) return std::string("the size is empty; write for example 8G");
    if (text[0] == '-') {
        return fmt::format("{} is negative; write for example 8G", in_quotes(text));
    }
    if (text.back() == '%') return parse_percent(text);

    std::size_t at = 0;
    while (at < text.size() && is_digit(text[at])) ++at;
    const std::string_view integer = text.substr(0, at);
    std::string_view fraction;
    bool well_formed = !integer.empty();
    if (at < text.size() && text[at] == '.') {
        const std::size_t start = ++at;
        while (at < text.size() && is_digit(text[at])) ++at;
        fraction = text.substr(start, at - start);
        well_formed = well_formed && !fraction.empty();
    }
    if (!well_formed) {
        return fmt::format("{} is not a size; write for example 8G, 1.5GiB or 4096",
                           in_quotes(text));
    }

    const auto unit = unit_shift(text, text.substr(0, at), text.substr(at));
    if (const auto* wrong = std::get_if<std::string>(&unit)) return *wrong;
    const unsigned shift = std::get<unsigned>(unit);

    const auto part = scale_fraction(fraction, shift);
    if (!part) {
        return fmt::format("{} is not a whole number of bytes; use a smaller unit",
                           in_quotes(text));
    }
    std::uint64_t value = 0;
    const auto error = std::from_chars(integer.data(), integer.data() + integer.size(), value).ec;
    constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    // `part` is below 2^shift, so only the shift of the whole number can overflow.
    if (error != std::errc() || value > (max >> shift)) {
        return fmt::format("{} is too large; a size is less than 16777216T", in_quotes(text));
    }
    return Size{.bytes = (value << shift) + *part};
}

std::string format_size(Size size) {
    if (size.percent > 0) return fmt::format("{}%", size.percent);
    for (const Unit& unit : units) {
        const std::uint64_t whole = size.bytes >> unit.shift;
        if (whole > 0 && whole << unit.shift == size.bytes) {
            return fmt::format("{}{}", whole, upper(unit.letter));
        }
    }
    return fmt::format("{}", size.bytes);
}

std::string human_size(std::uint64_t bytes) {
    if (bytes < 1024) return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
    std::uint64_t tenths = 0;
    char letter = 0;
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        const std::uint64_t whole = bytes >> unit->shift;
        const std::uint64_t rest = bytes - (whole << unit->shift);
        tenths =
            whole * 10 + ((rest * 10 + (std::uint64_t{1} << (unit->shift - 1))) >> unit->shift);
        letter = upper(unit->letter);
        if (tenths < 10240) break;  // otherwise the next unit, also after rounding up
    }
    const std::string fraction = tenths % 10 == 0 ? "" : fmt::format(".{}", tenths % 10);
    return fmt::format("{}{} {}iB", tenths / 10, fraction, letter);
}

}  // namespace gpunbd::config
