#include "server/json/report_failure.hpp"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>

#include "config/quote.hpp"

namespace gpunbd::server {

int report_failure(std::string_view command, std::string_view text, bool json, int exit_code) {
    if (json) {
        const boost::json::object failure{{"error", config::repaired_utf8(std::string(text))}};
        fmt::print("{}\n", boost::json::serialize(failure));
    } else {
        fmt::print(stderr, "gpunbd {}: {}\n", command, text);
    }
    return exit_code;
}

}  // namespace gpunbd::server
