// Functions that store the arguments of flags.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/command_line/command.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {

inline auto integer_in(std::uint64_t min, std::uint64_t max) {
    return [=](std::string_view text) { return rules::integer(text, {min, max}); };
}

inline Store into(bool& value) {
    return [&value](std::string_view) -> std::optional<std::string> {
        value = true;
        return std::nullopt;
    };
}

// --json of a command that prints text without it. `details`: what is printed, for gpunbd(8), in
// mdoc.
inline Flag json_flag(bool& json, std::string_view details) {
    return {.name = "--json",
            .brief = "Print JSON instead of text",
            .more = ".",
            .called = "--format --output",
            .details = details,
            .store = into(json)};
}

// Stores any text.
template <class Target>
    requires std::constructible_from<Target, std::string>
Store into(Target& target) {
    return [&target](std::string_view text) -> std::optional<std::string> {
        target = std::string(text);
        return std::nullopt;
    };
}

// Stores the value of a text that passes the rule.
template <class Target, class Rule>
Store into(Target& target, Rule rule) {
    return [&target, rule](std::string_view text) -> std::optional<std::string> {
        auto checked = rule(text);
        if (auto* wrong = std::get_if<rules::Wrong>(&checked)) return std::move(wrong->what);
        using Value = decltype([] {
            if constexpr (requires { typename Target::value_type; } &&
                          !std::same_as<Target, std::string>) {
                return typename Target::value_type{};
            } else {
                return Target{};
            }
        }());
        target = static_cast<Value>(std::get<0>(std::move(checked)));
        return std::nullopt;
    };
}

// Appends the text unchanged if it passes the rule. Throws UsageError for a duplicate.
template <class Rule>
Store append(std::vector<std::string>& target, std::string_view flag, Rule rule) {
    return [&target, flag, rule](std::string_view text) -> std::optional<std::string> {
        auto checked = rule(text);
        if (auto* wrong = std::get_if<rules::Wrong>(&checked)) return std::move(wrong->what);
        if (std::ranges::find(target, text) != target.end()) {
            throw UsageError(fmt::format("{} {} is given twice; give each once", flag, text));
        }
        target.emplace_back(text);
        return std::nullopt;
    };
}

}  // namespace gpunbd::config
