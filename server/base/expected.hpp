// A value, or the reason why there is none.
#pragma once

#include <boost/system/result.hpp>
#include <string>

namespace gpunbd::server {

template <typename Value, typename Error = std::string>
using Expected = boost::system::result<Value, Error>;

}  // namespace gpunbd::server
