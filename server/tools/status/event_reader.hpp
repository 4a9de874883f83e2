// Parses server-sent events (WHATWG HTML, "Server-sent events") from a body that arrives in pieces.
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

    // Returns the complete events. Fails if an event is longer than `longest` bytes.
    Expected<std::vector<Event>, Failure> take(std::string_view bytes);

 private:
    void take_line(std::string_view line, std::vector<Event>& out);

    const std::size_t longest_;
    std::string line_;  // the incomplete line
    Event event_;       // the incomplete event
};

}  // namespace gpunbd::status
