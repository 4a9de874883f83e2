// A client that knows what it may be answered: by the gate's verdict on what it sent, and by a
// shadow of the volume. What it sends waits until the script says how much of it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "protocol/gate.hpp"
#include "tests/fuzz/shadow.hpp"
#include "tests/server/client.hpp"

namespace gpunbd::fuzz {

class ScriptedClient {
 public:
    // `client` has shaken hands.
    ScriptedClient(server::test::Client client, protocol::NegotiatedOptions negotiated,
                   Shadow& shadow);

    void ask(const server::test::Ask& ask);
    // Bytes that are no request. From here on nobody knows what it changes, and it may be cut.
    void send_junk(std::span<const std::byte> bytes);
    // At most so many bytes of what waits.
    void send(std::size_t most);
    void receive(std::size_t most);
    void stop_sending();
    void cut();

    // Something was done to the server that excuses failures, or the end of connections.
    static void excuse_failures() { failures_excused = true; }
    static void excuse_ends() { ends_excused = true; }
    static void excuse_nothing() { failures_excused = ends_excused = false; }

    bool extended() const { return negotiated_.headers == protocol::Headers::extended; }
    // It keeps to the protocol, and is owed answers.
    bool honest() const { return !spoilt_ && !stopped_ && !cut_; }
    bool satisfied() const { return client_.ended() || (to_send_.empty() && asked_.empty()); }

 private:
    struct Asked {
        server::test::Ask ask;
        protocol::Validated verdict;
        Shadow::Time at;
    };
    static inline bool failures_excused = false;
    static inline bool ends_excused = false;

    void check(const server::test::Answer& answer);
    void check_error(const Asked& asked, protocol::Error error) const;
    void check_data(const Asked& asked, const server::test::Bytes& data) const;
    void check_extents(const Asked& asked, const std::vector<protocol::Extent>& extents) const;
    void check_end() const;

    server::test::Client client_;
    const protocol::NegotiatedOptions negotiated_;
    Shadow& shadow_;
    server::test::Bytes to_send_;
    std::map<std::uint64_t, Asked> asked_;
    bool leaves_ = false;  // it has sent DISC, or what has to be hung up on
    bool hung_up_on_ = false;
    bool spoilt_ = false;   // it has sent junk
    bool stopped_ = false;  // it sends no more
    bool cut_ = false;
};

}  // namespace gpunbd::fuzz
