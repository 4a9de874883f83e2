// A value, or the reason why there is none.
#pragma once

#include <boost/system/result.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace gpunbd {

template <typename Value, typename Error = std::string>
using Expected = boost::system::result<Value, Error>;

// For a caller that reports errors by exceptions.
template <typename Value>
Value value_or_throw(Expected<Value> expected) {
    if (!expected) throw std::runtime_error(expected.error());
    return *std::move(expected);
}

}  // namespace gpunbd
