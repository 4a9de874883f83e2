// Fixed newstyle negotiation, sans-I/O: it is fed bytes, and it asks for what is to be done next.
// One value that holds all that was agreed, so that STARTTLS can throw it away.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/export_info.hpp"
#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

// What the two sides agreed, for the transmission phase.
struct NegotiatedOptions {
    Headers headers = Headers::simple;
    MetaContexts contexts = {};  // agreed for this export
    ExportInfo export_info = {};
};

// For the log: what a client has asked for so far.
struct Asked {
    std::optional<std::string> export_name = {};  // the last, as it came: any bytes
    std::string refusal = {};                     // what the client was told; empty: it was granted
    std::string words = {};                       // all of that; printable ASCII; empty: nothing
};

// Whether TLS can be, or must be, begun by STARTTLS ("TLS support"): NOTLS, SELECTIVETLS,
// FORCEDTLS.
enum class TlsMode { off, optional, required };

class Negotiation {
 public:
    // `directory` outlives the negotiation. Copying one copies its whole state.
    explicit Negotiation(const ExportDirectory& directory, TlsMode tls = TlsMode::off);

    enum class Next {
        receive,    // send output(), then feed more bytes
        transmit,   // send output(), then the transmission phase starts with negotiated()
        start_tls,  // send output(), shake hands in TLS, call enter_tls(), then feed what it
                    // carries
        close,      // send output() as far as it goes, then close
    };

    // The bytes to send before anything is received.
    std::vector<std::byte> greeting() const;

    // Takes bytes as they come, in pieces of any length. `used` tells how many belonged to the
    // negotiation: all of them while Next::receive is the answer; after Next::transmit the rest is
    // the first request; after Next::close the rest is of no interest. Once it has answered
    // Next::transmit or Next::close it takes no more and repeats that answer. Bytes behind a
    // STARTTLS that is granted were sent in the clear by whomever: Next::close.
    Next feed(std::span<const std::byte> bytes, std::size_t& used);

    // What is to be sent now; emptied by the caller taking it. To be taken after every feed: past
    // a limit of what waits to be sent, LIST is refused with ERR_TOO_BIG.
    std::vector<std::byte> take_output();

    // After Next::start_tls, once TLS is on: all that was asked for in the clear is forgotten, but
    // for the client's flags.
    void enter_tls();

    // Answer ERR_SHUTDOWN to everything but ABORT from now on; EXPORT_NAME, which knows no error,
    // closes.
    void shut_down();

    // Complete after Next::transmit only.
    const NegotiatedOptions& negotiated() const;

    // One line for the log on why the connection is being closed; empty for a plain ABORT. Safe to
    // print: no byte of the client's that is not printable ASCII.
    const std::string& reason() const;
    Asked asked() const;

 private:
    enum class Stage { client_flags, option_header, option_data, drained_data };

    static constexpr std::size_t client_flags_size = 4;
    static constexpr std::size_t option_header_size = 16;

    std::size_t take(std::span<const std::byte> bytes);
    std::size_t gather(std::span<const std::byte> bytes, std::size_t wanted);
    void on_client_flags();
    void on_option_header();
    void on_option();
    // Must the client begin TLS first? For whatever it asks, or for this export.
    bool tls_is_missing() const { return tls_ == TlsMode::required && !inside_tls_; }
    bool tls_is_missing_for(const ExportInfo& info) const {
        return tls_ == TlsMode::optional && info.tls_required && !inside_tls_;
    }
    std::optional<ExportInfo> context_subject() const;
    bool has_other_contents(const ExportInfo& info, std::string_view asked_name) const;

    void on_export_name();
    void on_list();
    void on_starttls();
    void on_info(bool go);
    void on_structured_reply();
    void on_extended_headers();
    void on_list_meta_context();
    void on_set_meta_context();

    void enter_transmission(const ExportInfo& info, std::string_view asked_name);
    void refuse(OptionReply error, std::string_view message);
    void close(std::string reason);

    const ExportDirectory* directory_;
    TlsMode tls_;
    bool inside_tls_ = false;
    Stage stage_ = Stage::client_flags;
    Next next_ = Next::receive;
    bool fixed_newstyle_ = false;
    bool no_zeroes_ = false;
    bool shut_down_ = false;

    std::array<std::byte, option_header_size> header_{};
    std::size_t header_filled_ = 0;  // bytes
    std::uint32_t options_ = 0;      // seen so far
    std::uint32_t option_ = 0;       // the type of the one being received
    std::uint32_t option_length_ = 0;
    std::uint32_t drained_ = 0;
    std::vector<std::byte> data_;

    // What SET_META_CONTEXT chose, and the name that it holds for alone.
    MetaContexts contexts_;
    std::string context_export_;
    std::string context_instance_;
    bool listed_ = false;
    std::optional<std::string> asked_;  // the export named last, in whatever option
    std::string refusal_;               // why that option failed
    std::vector<std::byte> output_;
    NegotiatedOptions negotiated_;
    std::string reason_;
};

}  // namespace gpunbd::protocol
