// A request and its answer as plain values: what decides about them knows no sockets and no
// library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server::admin {

enum class Method { get, head, post, other };

struct Request {
    Method method = Method::get;
    std::string target = {};               // as it was sent: "/api/v1/map?export=a"
    std::optional<std::string> host = {};  // unset: there is none, or more than one
    std::optional<std::string> origin = {};
    std::optional<std::string> fetch_site = {};  // Sec-Fetch-Site
    std::optional<std::string> authorization = {};
    std::string content_type = {};
    std::string accept = {};
    std::string body = {};
};

struct Field {
    std::string name;
    std::string value;
};

struct Answer {
    unsigned status = 200;
    std::string type = "application/json";
    std::string body = {};
    std::vector<Field> fields = {};  // beside those that every answer has
    bool stream = false;             // ticks follow instead of a body
    std::string done = {};           // what it has changed; empty: nothing
};

// A JSON object with `error`.
Answer refusal(unsigned status, std::string_view why);

}  // namespace gpunbd::server::admin
