// The kinds of values of the configuration: how to parse, format and describe each.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "config/yaml_reader.hpp"

namespace gpunbd::config {

template <class T>
struct Kind {
    using Type = T;
    std::function<rules::Checked<T>(std::string_view)> check;
    std::function<std::string(const T&)> text;  // as YAML; empty: no value
    std::string type;
    std::string range = {};
    std::vector<std::string_view> words = {};
    Scalar form = Scalar::any;
};

inline Kind<std::uint64_t> integer(std::uint64_t min, std::uint64_t max) {
    return {.check =
                [=](std::string_view text) {
                    return rules::integer(text, {min, max});
                },
            .text = [](std::uint64_t value) { return std::to_string(value); },
            .type = "Integer",
            .range = fmt::format(", {} to {}", min, max),
            .form = Scalar::plain};
}

inline Kind<std::uint64_t> port() {
    Kind<std::uint64_t> kind = integer(1, 65535);
    kind.check = rules::port;
    return kind;
}

inline std::string size_text(std::uint64_t bytes) {
    return bytes == 0 ? "0" : format_size({.bytes = bytes});
}

inline Kind<std::uint64_t> bytes(rules::ByteRange range) {
    const bool open = range.max == rules::max_export_size;
    return {.check = [=](std::string_view text) { return rules::bytes(text, range); },
            .text = size_text,
            .type = "Size",
            .range =
                fmt::format("{}, {} {}", range.power_of_two ? ", a power of two" : "",
                            size_text(range.min), open ? "or more" : "to " + size_text(range.max))};
}

// `bytes`, or all memory of a device.
inline Kind<std::uint64_t> bytes_or_all(rules::ByteRange range) {
    Kind<std::uint64_t> kind = bytes(range);
    kind.check = [part = kind.check](std::string_view text) -> rules::Checked<std::uint64_t> {
        if (text == "100%") return all_memory;
        return part(text);
    };
    kind.text = [](std::uint64_t value) { return value == all_memory ? "100%" : size_text(value); };
    kind.range += ", or 100%";
    return kind;
}

inline Kind<std::chrono::seconds> seconds(std::uint64_t min, std::uint64_t max) {
    return {.check =
                [=](std::string_view text) {
                    return rules::seconds(text, {min, max});
                },
            .text = [](std::chrono::seconds time) { return fmt::format("{}s", time.count()); },
            .type = "Time",
            .range = fmt::format(", {} to {}", min, max)};
}

inline Kind<bool> boolean() {
    return {.check = rules::boolean,
            .text = [](bool value) { return value ? "true" : "false"; },
            .type = "Boolean",
            .form = Scalar::plain};
}

inline Kind<std::string> text(rules::Checked<std::string> (*check)(std::string_view)) {
    return {.check = check, .text = yaml_quoted, .type = "Text"};
}

// The empty text means that no path is set.
inline Kind<std::string> path() {
    Kind<std::string> value = text(rules::file_path);
    value.text = [](const std::string& given) {
        return given.empty() ? std::string() : yaml_quoted(given);
    };
    return value;
}

// The empty text means that none is set.
inline Kind<std::string> nbd_uri() {
    Kind<std::string> value = path();
    value.check = rules::nbd_uri;
    return value;
}

template <class T>
struct Word {
    std::string_view text;
    T value;
};
template <class T>
Kind<T> one_of(std::vector<Word<T>> known) {
    Kind<T> out;
    out.type = "Text";
    for (const Word<T>& word : known) out.words.push_back(word.text);
    out.range = fmt::format(": {}", rules::either(out.words));
    const auto words = out.words;
    out.check = [=](std::string_view text) -> rules::Checked<T> {
        const auto place = std::find(words.begin(), words.end(), text) - words.begin();
        if (place == std::ssize(words)) return rules::none_of(text, words);
        return known[static_cast<std::size_t>(place)].value;
    };
    out.text = [=](const T& value) {
        const auto is = [&](const Word<T>& word) { return word.value == value; };
        return std::string(std::find_if(known.begin(), known.end(), is)->text);
    };
    return out;
}

inline Kind<std::string> device_id() {
    Kind<std::string> value = text(rules::device_id);
    value.text = [](const std::string& id) { return id; };
    value.range = fmt::format(": {}", device_descriptions());
    return value;
}

inline Kind<Network> network() {
    return {.check = rules::network,
            .text = [](const Network& value) { return yaml_quoted(value.text()); },
            .type = "Text"};
}

inline Kind<Account> account(rules::Checked<Account> (*check)(std::string_view)) {
    return {.check = check,
            .text = [](const Account& value) { return yaml_quoted(value.name); },
            .type = "Name or number"};
}

inline Kind<Size> export_size() {
    return {.check = rules::export_size, .text = format_size, .type = "Size"};
}

inline Kind<std::uint32_t> vsock_cid() {
    return {.check = rules::vsock_cid,
            .text = [](std::uint32_t cid) { return cid == any_cid ? "any" : std::to_string(cid); },
            .type = "any, or an integer",
            .range = fmt::format(", 0 to {}", any_cid - 1)};
}

inline Kind<std::uint32_t> file_mode() {
    return {.check = rules::file_mode,
            .text = [](std::uint32_t bits) { return fmt::format("{:04o}", bits); },
            .type = "Octal digits",
            .range = ", 0000 to 0777"};
}

// Formats one special value as `text`.
inline Kind<std::uint64_t> with_text(Kind<std::uint64_t> kind, std::uint64_t special,
                                     const char* text) {
    kind.text = [special, text, others = kind.text](std::uint64_t value) {
        return value == special ? text : others(value);
    };
    return kind;
}

}  // namespace gpunbd::config
