#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/top_page.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

// Parses server-sent events (WHATWG HTML, "Server-sent events") from a body that arrives in pieces.
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

// The state of a server, every second: from the stream of its admin endpoint or, if it has none, by
// polling. Reconnects to a server that is not reachable.
class Feed {
 public:
    Feed(const ServerSelection& selection, const std::vector<std::string>& folders)
        : selection_(selection), folders_(folders) {}

    // Fetches the first state. Fails if there is no server, or if it does not answer.
    std::optional<Failure> begin();
    // Call step() when this is readable; -1: only next() counts.
    int fd() const;
    // The latest time for the next call of step().
    client::Deadline next() const { return next_; }
    // Returns true if there is new data.
    bool step();
    // The latest state.
    const Picture& picture();

 private:
    // An open response of the stream.
    struct Stream {
        OwnedFd fd;
        HttpAnswer answer;
        EventReader events;
    };
    std::optional<Failure> find();
    std::optional<Failure> open();
    Expected<bool, Failure> read_stream();
    std::optional<Failure> ask_again();
    void take(Tick tick);
    void lose(const Failure& failed);

    const ServerSelection selection_;
    const std::vector<std::string> folders_;
    std::optional<AdminServer> server_;
    std::optional<Stream> stream_;
    bool without_stream_ = false;
    Picture picture_;
    bool has_tick_ = false;
    client::Deadline next_{};
    std::optional<client::Clock::time_point> lost_;
};

}  // namespace gpunbd::status
