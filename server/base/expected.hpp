// A value, or the reason why there is none.
#pragma once

#include <boost/system/result.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace gpunbd::server {

template <typename Value, typename Error = std::string>
using Expected = boost::system::result<Value, Error>;

// `problem`: empty: there is none.
inline Expected<void> none_or(std::string problem) {
    if (problem.empty()) return {};
    return problem;
}

// For a caller whose errors are exceptions.
template <typename Value>
Value value_or_throw(Expected<Value> expected) {
    if (!expected) throw std::runtime_error(expected.error());
    return *std::move(expected);
}

}  // namespace gpunbd::server
