#include "server/admin/http/message.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/beast/http/status.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <ctime>
#include <iterator>
#include <string_view>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

Response error_response(unsigned status, std::string_view message) {
    boost::json::object object;
    object["error"] = config::repaired_utf8(message);
    return {.status = status, .body = boost::json::serialize(object)};
}

std::string response_header(const Response& response, bool keep_alive,
                            std::optional<std::size_t> length) {
    const auto reason =
        boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(response.status));
    std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status,
                                  std::string_view(reason.data(), reason.size()));
    const auto add = [&](std::string_view name, std::string_view value) {
        fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
    };
    add("Date", fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr))));
    add("Content-Type", response.content_type);
    add("Cache-Control", "no-store");
    add("X-Content-Type-Options", "nosniff");
    add("Referrer-Policy", "no-referrer");
    add("Cross-Origin-Resource-Policy", "same-origin");
    for (const Header& each : response.headers) add(each.name, each.value);
    if (!keep_alive) add("Connection", "close");
    if (length) add("Content-Length", fmt::format_int(*length).c_str());
    return out += "\r\n";
}

}  // namespace gpunbd::server::admin
