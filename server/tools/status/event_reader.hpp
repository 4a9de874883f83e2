// Server-sent events (WHATWG HTML, "Server-sent events") out of a body that comes in pieces.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/failure.hpp"

namespace gpunbd::status {

class EventReader {
 public:
    struct Event {
        std::string name;
        std::string data;
    };
    explicit EventReader(std::size_t longest) : longest_(longest) {}

    // The events that are whole now; a failure: one is longer than `longest` bytes.
    Or<std::vector<Event>> take(std::string_view bytes);

 private:
    void take_line(std::string_view line, std::vector<Event>& out);

    const std::size_t longest_;
    std::string line_;  // so far
    Event event_;       // likewise
};

}  // namespace gpunbd::status
