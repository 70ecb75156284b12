// The P4_16 core library, as P4_16 §D (the language specification) lists it.

#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,             // no error
    PacketTooShort,      // not enough bits in the packet for extract
    NoMatch,             // transition select has no case for the value
    StackOutOfBounds,    // a header stack has no such element
    HeaderTooShort,      // extract into a varbit field with too many bits
    ParserTimeout,       // the parser took too many steps
    ParserInvalidArgument // a call in the parser has an argument the target cannot take
}

extern packet_in {
    void extract<T>(out T hdr);
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    T lookahead<T>();
    void advance(in bit<32> sizeInBits);
    bit<32> length();
}

extern packet_out {
    void emit<T>(in T hdr);
}

extern void verify(in bool check, in error toSignal);

extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

@noWarn("unused")
action NoAction() { }

match_kind {
    exact,
    ternary,
    lpm
}

#endif
