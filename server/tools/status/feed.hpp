// The state of a server, every second: from the stream of its admin endpoint or, if it has none, by
// polling. Reconnects to a server that is not reachable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/event_reader.hpp"
#include "server/tools/status/http_answer.hpp"
#include "server/tools/status/server_selection.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/top_page.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

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
