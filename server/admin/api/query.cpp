#include "server/admin/api/query.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// As in HTML forms, '+' is a space.
std::optional<std::string> decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i] == '+' ? ' ' : text[i];
            continue;
        }
        if (text.size() - i < 3) return std::nullopt;
        const int high = hex_digit(text[i + 1]);
        const int low = hex_digit(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

}  // namespace

Target split_target(std::string_view target) {
    const std::size_t mark = target.find('?');
    if (mark == std::string_view::npos) return {.path = target, .query = {}};
    return {.path = target.substr(0, mark), .query = target.substr(mark + 1)};
}

Query::Query(std::string_view text) {
    while (!text.empty()) {
        const std::string_view each = text.substr(0, text.find('&'));
        text.remove_prefix(std::min(each.size() + 1, text.size()));
        const std::size_t equals = each.find('=');
        if (equals == std::string_view::npos) {
            set_error(fmt::format("{}: has no value; write NAME=VALUE", config::in_quotes(each)));
            continue;
        }
        const auto name = decoded(each.substr(0, equals));
        const auto value = decoded(each.substr(equals + 1));
        if (!name || !value) {
            set_error(fmt::format("{}: % must be followed by two hexadecimal digits",
                                  config::in_quotes(each)));
        } else if (!values_.emplace(*name, *value).second) {
            set_error(fmt::format("{}: is given twice", config::in_quotes(*name)));
        }
    }
}

std::optional<std::string> Query::text(const std::string& name) {
    known_[name] = true;
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    return found->second;
}

std::string Query::required_text(const std::string& name) {
    auto value = text(name);
    if (!value) set_error(fmt::format("{0}: is missing; add {0}=VALUE to the query", name));
    return value.value_or("");
}

std::uint64_t Query::count(const std::string& name, std::uint64_t least, std::uint64_t most,
                           std::uint64_t otherwise) {
    const auto value = text(name);
    if (!value) return otherwise;
    std::uint64_t number = 0;
    const char* const end = value->data() + value->size();
    const auto [stopped, failure] = std::from_chars(value->data(), end, number);
    if (failure == std::errc() && stopped == end && number >= least && number <= most)
        return number;
    set_error(fmt::format("{}: {} is not an integer from {} to {}", name, config::in_quotes(*value),
                          least, most));
    return otherwise;
}

std::optional<std::string> Query::error() const {
    if (error_) return error_;
    for (const auto& [name, value] : values_) {
        if (known_.contains(name)) continue;
        std::string known;
        for (const auto& each : known_) known += (known.empty() ? "" : ", ") + each.first;
        return fmt::format(
            "{}: unknown parameter; {}", config::in_quotes(name),
            known.empty() ? "this path has no parameters" : "known parameters: " + known);
    }
    return std::nullopt;
}

void Query::set_error(const std::string& what) {
    if (!error_) error_ = what;
}

}  // namespace gpunbd::server::admin
