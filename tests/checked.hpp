// Results of calls that must succeed, or must fail, in tests.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace gpunbd::test {

// Returns the value, which is the first type of such results.
template <class Value, class Failure>
Value checked(std::variant<Value, Failure> result) {
    if constexpr (std::is_same_v<Failure, std::string>) {
        if (const auto* const why = std::get_if<std::string>(&result)) FAIL(*why);
    }
    REQUIRE(std::holds_alternative<Value>(result));
    return std::get<Value>(std::move(result));
}

// Returns the reason for a failure. Empty: the call succeeded.
template <class Value>
std::string failure_of(const std::variant<Value, std::string>& result) {
    const auto* const why = std::get_if<std::string>(&result);
    return why == nullptr ? std::string() : *why;
}

// Returns the text of the exception. Empty: the call succeeded.
std::string error_of(const auto& call) {
    try {
        static_cast<void>(call());
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

}  // namespace gpunbd::test

namespace gpunbd {
using test::checked, test::error_of, test::failure_of;
}
