# Debug information that goes round in circles, for 64-bit machines with GNU as.
.text
.globl _start
.globl looping
.type looping, %function
_start:
looping:
.Lbegin:
.rept 64
  .byte 0x90
.endr
.Lend:
.size looping, .Lend - .Lbegin
.section .debug_abbrev,"",%progbits
# 1: a unit with children: low and high address
.uleb128 1
.uleb128 0x11
.byte 1
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.uleb128 0
.uleb128 0
# 2: a function with children: addresses and what it is a copy of
.uleb128 2
.uleb128 0x2e
.byte 1
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.uleb128 0x31
.uleb128 0x13
.uleb128 0
.uleb128 0
# 3: an inlined function with children, alike
.uleb128 3
.uleb128 0x1d
.byte 1
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.uleb128 0x31
.uleb128 0x13
.uleb128 0
.uleb128 0
# 4: a function that completes another (specification)
.uleb128 4
.uleb128 0x2e
.byte 0
.uleb128 0x47
.uleb128 0x13
.uleb128 0
.uleb128 0
.byte 0
.section .debug_info,"",%progbits
.Lunit:
.long .Lunitend - .Lversion
.Lversion:
.short 4
.long 0
.byte 8
.uleb128 1
.quad .Lbegin
.quad .Lend - .Lbegin
.Lself:
.uleb128 2
.quad .Lbegin
.quad 32
.long .Lself - .Lunit
# A tower of inlined functions, each within the one before, all of them their own origin.
.rept 300
.uleb128 3
.quad .Lbegin
.quad 32
.long .Lself - .Lunit
.endr
.rept 300
.byte 0
.endr
.byte 0
.Lone:
.uleb128 2
.quad .Lbegin + 32
.quad 16
.long .Lother - .Lunit
.byte 0
.Lother:
.uleb128 2
.quad .Lbegin + 48
.quad 16
.long .Lone - .Lunit
.byte 0
.Lhere:
.uleb128 4
.long .Lthere - .Lunit
.Lthere:
.uleb128 4
.long .Lhere - .Lunit
.byte 0
.Lunitend:
