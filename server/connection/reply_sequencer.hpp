// The rule for READs whose reply may not be split: one header, and then all of the data, between
// which nothing else may be sent. It decides who has the stream to itself and who begins when, so
// that none of them waits for staging memory that is with those who wait for the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpunbd::server {

// A READ on its way, as the sequencer sees it.
class SequencedReply {
 public:
    enum class Form : std::uint8_t {
        chunks,  // in several pieces, others between them
        whole,   // may not be split
    };
    enum class Place : std::uint8_t {
        outside,  // not entered, or it has left
        waiting,  // it may not begin yet
        reading,  // it has begun, and wants more memory
        served,   // it has all the memory that it will want
    };
    // It was told to wait; now it may try again.
    virtual void resume() = 0;

    Form form() const { return form_; }
    Place place() const { return place_; }

 protected:
    SequencedReply() = default;
    virtual ~SequencedReply() = default;

 private:
    friend class ReplySequencer;
    Form form_ = Form::chunks;
    Place place_ = Place::outside;
};

// Invariants:
// - A whole reply begins only while no reply in chunks is unanswered: those go on wanting memory.
// - While a whole reply wants memory no further request is taken (takes_requests()), so that there
//   is at most one such, and those before it can be answered without it.
// - Nobody but the holder of the stream sends between its header and its last byte.
class ReplySequencer {
 public:
    // Counts it among the unanswered. false: it may not begin yet, and is resumed.
    bool enter(SequencedReply& reply, SequencedReply::Form form);
    // Asked again when it is resumed.
    bool begin(SequencedReply& reply);
    // It has all the memory that it will want. true: requests may be taken again.
    bool served(SequencedReply& reply);
    // The stream for a whole reply that takes more than one send. false: another has it, or it
    // might have to wait for memory while it had it; it is resumed.
    bool hold(SequencedReply& reply);
    // It has queued its last byte, or is not wanted any more. true: requests may be taken again.
    // To be followed by resume_waiting().
    bool leave(SequencedReply& reply);
    // Those who were told to wait try again, in order, until one holds the stream.
    void resume_waiting() {
        if (!waiting_.empty()) resume_in_order();
    }

    // Must what `sender` (null: a reply that has no order) adds wait behind the holder?
    bool held_by_other(const SequencedReply* sender) const {
        return holder_ != nullptr && holder_ != sender;
    }
    bool takes_requests() const { return wanting_ == nullptr; }
    // Forgets everybody, telling nobody.
    void clear();

 private:
    std::uint32_t& unanswered(SequencedReply::Form form) {
        return unanswered_[static_cast<std::size_t>(form)];
    }
    void wait(SequencedReply& reply);
    void resume_in_order();

    std::array<std::uint32_t, 2> unanswered_{};  // by form
    const SequencedReply* wanting_ = nullptr;    // the whole reply that has not all its memory
    const SequencedReply* holder_ = nullptr;
    std::vector<SequencedReply*> waiting_;
    std::size_t to_resume_ = 0;  // of them, the first
    bool resuming_ = false;
};

}  // namespace gpunbd::server
